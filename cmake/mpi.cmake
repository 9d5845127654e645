# Training on several processes of CPUs over MPI, src/comm/mpi/**, as a module that the program loads when mpirun started
# it: one build serves machines with and without MPI.
if(NOT QUAVER_MPI OR QUAVER_SANITIZE)
  return()
endif()
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI COMPONENTS CXX)
if(NOT MPI_CXX_FOUND)
  message(STATUS "MPI not found: building without it (Debian: libopenmpi-dev)")
  return()
endif()

file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/comm/mpi/*.cpp)
add_library(quaver_mpi MODULE ${sources})
target_link_libraries(quaver_mpi PRIVATE quaver_comm MPI::MPI_CXX Threads::Threads)
target_link_options(quaver_mpi PRIVATE -Wl,--exclude-libs,ALL)
set_target_properties(quaver_mpi PROPERTIES OUTPUT_NAME quaver_mpi PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
install(TARGETS quaver_mpi LIBRARY DESTINATION lib COMPONENT mpi)
add_dependencies(program quaver_mpi)
