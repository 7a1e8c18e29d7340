#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tenscope::kernels {

// The vector units the kernels are compiled for, best first, as far as this CPU has them: "avx512", "avx2", "sse4",
// "ssse3", "scalar" on x86. The best is used, or the one that the environment variable TENSCOPE_SIMD (read once) names.
std::vector<std::string> simd_targets();
std::string simd_target();  // the one in use

// Uses the target of this name from now on, and the best one for an empty name. False where there is none of this name.
// For tests and benchmarks; not while another thread is inside a kernel.
bool use_simd_target(std::string_view name);

// Must come before the first dynamic dispatch.
void ensure_simd_target();

}  // namespace tenscope::kernels
