# A room of the house: a static library from the .cpp files of one folder of src/, its unit tests (*_test.cpp) in one
# program named <room>_test, and its libFuzzer targets (*_fuzz.cpp). DEPENDS names the rooms and libraries it may use:
# what is not listed does not link. The tests are no part of `all`: build the target unit_tests.
add_custom_target(unit_tests)
add_library(tenscope_flags INTERFACE)
target_compile_options(tenscope_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers)
# The vptr check opens a pipe to look at memory: it fails by itself in a test that leaves no file descriptor.
if(TENSCOPE_SANITIZE)
  target_compile_options(tenscope_flags INTERFACE -fsanitize=${TENSCOPE_SANITIZE} -fno-omit-frame-pointer
                                                  -fno-sanitize=vptr -fno-sanitize-recover=undefined)
  target_link_options(tenscope_flags INTERFACE -fsanitize=${TENSCOPE_SANITIZE})
endif()

function(tenscope_room room)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  set(tests ${sources})
  set(fuzzers ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.cpp$")

  if(NOT sources)
    return()
  endif()
  add_library(tenscope_${room} STATIC ${sources})
  add_library(tenscope::${room} ALIAS tenscope_${room})
  target_include_directories(tenscope_${room} PUBLIC
    $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
    $<INSTALL_INTERFACE:include>)
  target_link_libraries(tenscope_${room} PUBLIC ${ARG_DEPENDS} PRIVATE $<BUILD_INTERFACE:tenscope_flags>)

  if(TENSCOPE_TESTS AND tests)
    add_executable(${room}_test EXCLUDE_FROM_ALL ${tests})
    add_dependencies(unit_tests ${room}_test)
    target_link_libraries(${room}_test PRIVATE tenscope_${room} tenscope_flags GTest::gtest_main)
    gtest_discover_tests(${room}_test TEST_PREFIX ${room}. DISCOVERY_TIMEOUT 60)
  endif()
  if(TENSCOPE_FUZZ)
    foreach(fuzzer ${fuzzers})
      get_filename_component(name ${fuzzer} NAME_WE)
      add_executable(${name} ${fuzzer})
      target_link_libraries(${name} PRIVATE tenscope_${room} tenscope_flags)
      target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    endforeach()
  endif()
endfunction()
