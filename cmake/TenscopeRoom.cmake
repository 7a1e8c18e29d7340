# A room of the house: a static library from the .cpp files of one folder of src/, its unit tests (*_test.cpp) in one
# program named <room>_test, and its libFuzzer targets (*_fuzz.cpp). The tests are no part of `all`: build the target
# unit_tests.
#
# rooms.txt lists the rooms and which of them each may use. A room's headers are reached through an include directory of
# its own in the build tree, rooms/<room>, that holds nothing but a link to the room's folder. What is compiled gets the
# directories of its own room and of the rooms that this one may use, never PUBLIC: any other include does not compile.
set(TENSCOPE_ROOMS "")
set(table ${CMAKE_CURRENT_LIST_DIR}/rooms.txt)
set_property(DIRECTORY ${PROJECT_SOURCE_DIR} APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${table})
file(STRINGS ${table} rows REGEX "^[a-z0-9]+ +(src|python)/")
foreach(row ${rows})
  separate_arguments(words UNIX_COMMAND "${row}")
  list(POP_FRONT words room folder)
  list(APPEND TENSCOPE_ROOMS ${room})
  set(TENSCOPE_FOLDER_${room} ${PROJECT_SOURCE_DIR}/${folder})
  set(TENSCOPE_USES_${room} ${words})
  string(REGEX REPLACE "^(src|python)/" "${PROJECT_BINARY_DIR}/rooms/${room}/" link ${folder})
  get_filename_component(parent ${link} DIRECTORY)
  file(MAKE_DIRECTORY ${parent})
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${folder} ${link} SYMBOLIC)
endforeach()

add_custom_target(unit_tests)
add_library(tenscope_flags INTERFACE)
target_compile_options(tenscope_flags INTERFACE -Wall -Wextra -Wno-missing-field-initializers)
# The vptr check opens a pipe to look at memory: it fails by itself in a test that leaves no file descriptor. What the
# checks of null and object-size find, AddressSanitizer finds as well, and they are slow to compile.
if(TENSCOPE_SANITIZE)
  target_compile_options(tenscope_flags INTERFACE -fsanitize=${TENSCOPE_SANITIZE} -fno-omit-frame-pointer
                                                  -fno-sanitize=vptr,null,object-size
                                                  -fno-sanitize-recover=undefined)
  target_link_options(tenscope_flags INTERFACE -fsanitize=${TENSCOPE_SANITIZE})
endif()

# The headers from outside that most files include, read once for all libraries and once for all programs, which are
# compiled with other flags. Every file still includes what it needs: clang-tidy's build folder goes without.
set(headers <algorithm> <array> <atomic> <charconv> <cmath> <cstdint> <cstring> <filesystem> <functional> <limits> <map>
            <memory> <mutex> <numeric> <optional> <set> <span> <string> <string_view> <unordered_map> <utility> <vector>
            <fmt/format.h>)
if(TENSCOPE_PRECOMPILE)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/nothing.cpp CONTENT "int main() {}\n")
  add_library(tenscope_headers STATIC ${PROJECT_BINARY_DIR}/nothing.cpp)
  add_executable(tenscope_program_headers EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/nothing.cpp)
  foreach(target tenscope_headers tenscope_program_headers)
    target_precompile_headers(${target} PRIVATE ${headers})
    target_link_libraries(${target} PRIVATE tenscope_flags fmt::fmt)
    target_compile_options(${target} PRIVATE -fpch-preprocess)
  endforeach()
endif()

function(tenscope_precompile target)
  get_target_property(has_it ${target} PRECOMPILE_HEADERS_REUSE_FROM)
  if(TENSCOPE_PRECOMPILE AND NOT has_it)
    get_target_property(type ${target} TYPE)
    if(type STREQUAL EXECUTABLE)
      target_precompile_headers(${target} REUSE_FROM tenscope_program_headers)
    else()
      target_precompile_headers(${target} REUSE_FROM tenscope_headers)
    endif()
    target_compile_options(${target} PRIVATE -fpch-preprocess)  # for ccache
  endif()
endfunction()

# The include directories of what stands in `room`.
function(tenscope_room_directories room variable)
  if(NOT room IN_LIST TENSCOPE_ROOMS)
    message(FATAL_ERROR "the room ${room} is not in cmake/rooms.txt")
  endif()
  list(TRANSFORM TENSCOPE_USES_${room} PREPEND ${PROJECT_BINARY_DIR}/rooms/ OUTPUT_VARIABLE directories)
  set(${variable} ${PROJECT_BINARY_DIR}/rooms/${room} ${directories} PARENT_SCOPE)
endfunction()

# Links `target` with a room, if that is a library, and with the rooms it may use. Their directories are not passed on.
function(tenscope_link_room target room)
  target_link_libraries(${target} PRIVATE fmt::fmt)
  foreach(used ${room} ${TENSCOPE_USES_${room}})
    if(TARGET tenscope_${used} AND NOT target STREQUAL tenscope_${used})
      target_link_libraries(${target} PRIVATE tenscope::${used})
    endif()
  endforeach()
endfunction()

# Makes `target` part of `room`.
function(tenscope_place target room)
  tenscope_room_directories(${room} directories)
  target_include_directories(${target} PRIVATE ${directories})
  tenscope_link_room(${target} ${room})
  tenscope_precompile(${target})
endfunction()

# A library of the sources given. DEPENDS names the libraries from outside that it uses.
function(tenscope_room_library room)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPENDS" ${ARGN})
  add_library(tenscope_${room} STATIC ${ARG_SOURCES})
  add_library(tenscope::${room} ALIAS tenscope_${room})
  target_include_directories(tenscope_${room} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                                                     $<INSTALL_INTERFACE:include>)
  target_link_libraries(tenscope_${room} PRIVATE ${ARG_DEPENDS} $<BUILD_INTERFACE:tenscope_flags>)
  tenscope_place(tenscope_${room} ${room})
endfunction()

function(tenscope_room room)
  cmake_parse_arguments(ARG "" "" "DEPENDS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  set(tests ${sources})
  set(fuzzers ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER fuzzers INCLUDE REGEX "_fuzz\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.cpp$")
  tenscope_room_library(${room} SOURCES ${sources} DEPENDS ${ARG_DEPENDS})
  set_property(GLOBAL APPEND PROPERTY TENSCOPE_LIBRARIES ${room})

  if(TENSCOPE_TESTS AND tests)
    add_executable(${room}_test EXCLUDE_FROM_ALL ${tests})
    add_dependencies(unit_tests ${room}_test)
    tenscope_place(${room}_test ${room})
    target_link_libraries(${room}_test PRIVATE ${ARG_DEPENDS} tenscope_flags GTest::gtest_main)
    gtest_discover_tests(${room}_test TEST_PREFIX ${room}. DISCOVERY_TIMEOUT 60)
  endif()
  if(TENSCOPE_FUZZ)
    foreach(fuzzer ${fuzzers})
      get_filename_component(name ${fuzzer} NAME_WE)
      add_executable(${name} ${fuzzer})
      tenscope_place(${name} ${room})
      target_link_libraries(${name} PRIVATE tenscope_flags)
      target_link_options(${name} PRIVATE -fsanitize=fuzzer)
    endforeach()
  endif()
endfunction()
