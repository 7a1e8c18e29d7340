#pragma once

#include <condition_variable>

// GCC 12 gave std::condition_variable::wait a new version in libstdc++ (it became noexcept), and a program that was
// linked with that starts with libstdc++ 12 and later only. The older version is in every libstdc++ and does the same:
// what waits includes this header and asks for that one, so that wheels also run where GCC 11 made the system's library
// (RHEL 9). `make wheel` prints what they need.
#if defined(__GLIBCXX__) && defined(__x86_64__)
#define TENSCOPE_WAIT "_ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE"
__asm__(".symver " TENSCOPE_WAIT "," TENSCOPE_WAIT "@GLIBCXX_3.4.11");
#undef TENSCOPE_WAIT
#endif
