# libquaver: the public headers of include/quaver and what implements them, as one shared library whose other symbols are
# hidden. Installed with its CMake package and pkg-config file, and with the Python package, which loads it.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(map ${PROJECT_SOURCE_DIR}/cmake/libquaver.map)
add_library(quaver_library SHARED ${PROJECT_SOURCE_DIR}/cmake/libquaver.cpp)
target_link_libraries(quaver_library PRIVATE "$<LINK_LIBRARY:WHOLE_ARCHIVE,quaver_api>")
target_link_options(quaver_library PRIVATE -Wl,--version-script=${map})
target_include_directories(quaver_library INTERFACE $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_compile_features(quaver_library INTERFACE cxx_std_20)
set_target_properties(quaver_library PROPERTIES OUTPUT_NAME quaver EXPORT_NAME quaver LINK_DEPENDS ${map}
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})

add_dependencies(program quaver_library)

install(TARGETS quaver_library EXPORT quaver
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT library NAMELINK_COMPONENT development)
install(DIRECTORY include/quaver DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development)

set(cmake_folder ${CMAKE_INSTALL_LIBDIR}/cmake/quaver)
install(EXPORT quaver NAMESPACE quaver:: FILE quaverConfig.cmake DESTINATION ${cmake_folder} COMPONENT development)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/quaverConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/quaverConfigVersion.cmake DESTINATION ${cmake_folder} COMPONENT development)

# Relative to the file, so that an installed tree can be moved.
file(RELATIVE_PATH prefix_from_pc /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/quaver.pc.in ${CMAKE_BINARY_DIR}/quaver.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/quaver.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)

# Debian's folder for packages of every Python 3; with another prefix PYTHONPATH names it.
set(QUAVER_PYTHON_FOLDER lib/python3/dist-packages CACHE STRING "Where the Python package is installed, below the prefix")
install(DIRECTORY python/quaver DESTINATION ${QUAVER_PYTHON_FOLDER} COMPONENT python
  PATTERN __pycache__ EXCLUDE)
