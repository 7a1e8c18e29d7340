# One library for users: libtenscope.so, which exports the public headers' functions and nothing else, and keeps what it
# is made of to itself. A program that uses it needs the headers and the library: find_package(tenscope) gives both as
# tenscope::tenscope, from the tree, from an installation and from a wheel.
include(CMakePackageConfigHelpers)

# Whole are the rooms that implement public headers; of the others, what these use.
file(STRINGS ${PROJECT_SOURCE_DIR}/cmake/rooms.txt headers REGEX "^tenscope/")
list(TRANSFORM headers REPLACE "^[^ ]+ +" "tenscope_")
list(REMOVE_DUPLICATES headers)
list(REMOVE_ITEM headers tenscope_sdk)
list(JOIN headers "," whole)
set(exports ${PROJECT_SOURCE_DIR}/cmake/libtenscope.map)
add_library(tenscope_shared SHARED $<TARGET_OBJECTS:tenscope_sdk>)
add_library(tenscope::tenscope ALIAS tenscope_shared)
set(so_version ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
set_target_properties(tenscope_shared PROPERTIES OUTPUT_NAME tenscope SOVERSION ${so_version} LINK_DEPENDS ${exports})
target_include_directories(tenscope_shared INTERFACE ${PROJECT_SOURCE_DIR}/include)
set(standard "$<IF:$<BOOL:$<TARGET_PROPERTY:CXX_STANDARD>>,cxx_std_17,cxx_std_20>")  # 20 where the user asks for none
target_compile_features(tenscope_shared INTERFACE "${standard}")
target_link_libraries(tenscope_shared PRIVATE tenscope_flags tenscope_sdk "$<LINK_LIBRARY:WHOLE_ARCHIVE,${whole}>")
target_link_options(tenscope_shared PRIVATE -Wl,--version-script=${exports} -Wl,-Bsymbolic-functions
                                            $<$<CONFIG:Release>:-Wl,--strip-all>)

# Library, headers and CMake package below the given folders. The rest are words for install().
function(tenscope_install_library library_folder include_folder)
  set(library ${library_folder}/libtenscope.so.${so_version})
  set(package_folder ${library_folder}/cmake/tenscope)
  set(config ${PROJECT_BINARY_DIR}/${package_folder}/tenscopeConfig.cmake)
  set(version ${PROJECT_BINARY_DIR}/${package_folder}/tenscopeConfigVersion.cmake)
  configure_package_config_file(cmake/tenscopeConfig.cmake.in ${config} INSTALL_DESTINATION ${package_folder}
                                PATH_VARS library include_folder)
  write_basic_package_version_file(${version} COMPATIBILITY SameMinorVersion)
  install(TARGETS tenscope_shared LIBRARY DESTINATION ${library_folder} ${ARGN} ${namelink})
  install(DIRECTORY include/tenscope DESTINATION ${include_folder} ${ARGN})
  install(FILES ${config} ${version} DESTINATION ${package_folder} ${ARGN})
endfunction()

# In a wheel, which cannot hold links, it lies in the Python package.
set(component COMPONENT development)
if(SKBUILD)
  set(namelink NAMELINK_SKIP)
  tenscope_install_library(tenscope/lib tenscope/include COMPONENT wheel)
  unset(namelink)
  list(APPEND component EXCLUDE_FROM_ALL)
endif()
tenscope_install_library(${CMAKE_INSTALL_LIBDIR} ${CMAKE_INSTALL_INCLUDEDIR} ${component})
