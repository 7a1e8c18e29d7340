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

# Library, headers, CMake package and pkg-config file below the given folders. The rest are words for install().
function(tenscope_install_library library_folder include_folder)
  set(library ${library_folder}/libtenscope.so.${so_version})
  set(package_folder ${library_folder}/cmake/tenscope)
  set(made ${PROJECT_BINARY_DIR}/installed/${library_folder})
  set(config ${made}/tenscopeConfig.cmake)
  set(version ${made}/tenscopeConfigVersion.cmake)
  configure_package_config_file(cmake/tenscopeConfig.cmake.in ${config} INSTALL_DESTINATION ${package_folder}
                                PATH_VARS library include_folder)
  write_basic_package_version_file(${version} COMPATIBILITY SameMinorVersion)
  cmake_path(RELATIVE_PATH CMAKE_INSTALL_PREFIX BASE_DIRECTORY ${CMAKE_INSTALL_PREFIX}/${library_folder}/pkgconfig
             OUTPUT_VARIABLE prefix)
  configure_file(cmake/tenscope.pc.in ${made}/tenscope.pc @ONLY)
  install(TARGETS tenscope_shared LIBRARY DESTINATION ${library_folder} ${ARGN} ${namelink})
  install(DIRECTORY include/tenscope DESTINATION ${include_folder} ${ARGN})
  install(FILES ${config} ${version} DESTINATION ${package_folder} ${ARGN})
  install(FILES ${made}/tenscope.pc DESTINATION ${library_folder}/pkgconfig ${ARGN})
endfunction()

# What `cmake --install` installs, in any build tree: the library and, unless another component is asked for, the command
# line program.
set(link tenscope)
tenscope_install_library(${CMAKE_INSTALL_LIBDIR} ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)
install(FILES LICENSE THIRD-PARTY-LICENSES.txt DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT development)
if(TENSCOPE_CLI)
  install(TARGETS tenscope RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
endif()

# What goes into a wheel, and is installed by scikit-build-core alone (pyproject.toml): the extension, the program, and
# the library in the Python package. A wheel cannot hold links.
if(SKBUILD)
  set(wheel COMPONENT wheel EXCLUDE_FROM_ALL)
  set(link :libtenscope.so.${so_version})
  set(namelink NAMELINK_SKIP)
  tenscope_install_library(tenscope/lib tenscope/include ${wheel})
  install(TARGETS _core LIBRARY DESTINATION tenscope ${wheel})
  if(TENSCOPE_CLI)
    install(TARGETS tenscope RUNTIME DESTINATION "${SKBUILD_SCRIPTS_DIR}" ${wheel})
  endif()
endif()
