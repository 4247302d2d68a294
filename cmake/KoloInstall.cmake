# cmake --install: headers, the two libraries, the command, pkg-config files and the CMake package. The
# installed tree can be moved, as all paths in it are relative. Programs that use the libraries need not link
# their dependencies.
include(CMakePackageConfigHelpers)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/kolo)

install(DIRECTORY include/kolo DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
set_target_properties(kolo-comm PROPERTIES EXPORT_NAME comm)
foreach(library kolo kolo-comm)
  target_include_directories(${library} INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
endforeach()
install(TARGETS kolo kolo-comm EXPORT kolo LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
foreach(mpi ${KOLO_MPI_FOUND})
  install(TARGETS kolo-mpi-${mpi} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endforeach()
if(TARGET kolo-ucx)
  install(TARGETS kolo-ucx LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
install(EXPORT kolo NAMESPACE kolo:: FILE kolo-targets.cmake DESTINATION ${package})

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/kolo-config.cmake.in
  ${PROJECT_BINARY_DIR}/kolo-config.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/kolo-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/kolo-config.cmake ${PROJECT_BINARY_DIR}/kolo-config-version.cmake
  DESTINATION ${package})

# ${pcfiledir} keeps the pkg-config files valid when the tree is moved.
file(RELATIVE_PATH KOLO_PC_PREFIX
  /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
string(REGEX REPLACE "/$" "" KOLO_PC_PREFIX "${KOLO_PC_PREFIX}")
foreach(module kolo kolo-comm)
  configure_file(cmake/${module}.pc.in ${PROJECT_BINARY_DIR}/${module}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/${module}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
endforeach()

if(TARGET kolo-cli)
  file(RELATIVE_PATH bin_to_lib /${CMAKE_INSTALL_BINDIR} /${CMAKE_INSTALL_LIBDIR})
  set_target_properties(kolo-cli PROPERTIES INSTALL_RPATH "$ORIGIN/${bin_to_lib}")
  install(TARGETS kolo-cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
  if(TARGET kolo-man)
    install(FILES ${PROJECT_BINARY_DIR}/kolo.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1)
  endif()
endif()

# The Python module: its sources and the relative path to the library.
if(KOLO_PYTHON)
  set(KOLO_PYTHON_DIR lib/python3/dist-packages CACHE STRING "where the Python module is installed")
  install(DIRECTORY python/kolo DESTINATION ${KOLO_PYTHON_DIR} FILES_MATCHING PATTERN "*.py" PATTERN py.typed
    PATTERN __pycache__ EXCLUDE)
  file(RELATIVE_PATH python_to_lib /${KOLO_PYTHON_DIR}/kolo /${CMAKE_INSTALL_LIBDIR})
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/library_folder.txt CONTENT "${python_to_lib}\n")
  install(FILES ${PROJECT_BINARY_DIR}/library_folder.txt DESTINATION ${KOLO_PYTHON_DIR}/kolo)
endif()
