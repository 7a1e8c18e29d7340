# One target for users, tenscope::tenscope, from the tree or from an installation: find_package(tenscope).
include(CMakePackageConfigHelpers)

set(installed_rooms "")
get_property(libraries GLOBAL PROPERTY TENSCOPE_LIBRARIES)
foreach(room ${libraries})
  list(APPEND installed_rooms tenscope_${room})
  set_target_properties(tenscope_${room} PROPERTIES EXPORT_NAME ${room})
endforeach()
add_library(tenscope_all INTERFACE)
add_library(tenscope::tenscope ALIAS tenscope_all)
set_target_properties(tenscope_all PROPERTIES EXPORT_NAME tenscope)
target_link_libraries(tenscope_all INTERFACE ${installed_rooms})
target_compile_features(tenscope_all INTERFACE cxx_std_20)

# A wheel has none of it, unless its component is asked for.
set(component COMPONENT development)
if(SKBUILD)
  list(APPEND component EXCLUDE_FROM_ALL)
endif()
set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/tenscope)
install(TARGETS ${installed_rooms} tenscope_all EXPORT tenscopeTargets
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} ${component})
install(DIRECTORY include/tenscope DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} ${component})
install(EXPORT tenscopeTargets NAMESPACE tenscope:: DESTINATION ${package_folder} ${component})
configure_package_config_file(cmake/tenscopeConfig.cmake.in ${PROJECT_BINARY_DIR}/tenscopeConfig.cmake
                              INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tenscopeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tenscopeConfig.cmake ${PROJECT_BINARY_DIR}/tenscopeConfigVersion.cmake
        DESTINATION ${package_folder} ${component})
