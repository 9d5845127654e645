# The CUDA engine, src/engine/cuda/**, as a module that the program loads at run time: one build serves machines with and
# without a GPU.
if(NOT QUAVER_CUDA OR QUAVER_SANITIZE)
  return()
endif()
if(NOT CMAKE_CUDA_COMPILER)
  find_program(QUAVER_NVCC nvcc HINTS /usr/local/cuda/bin)
  if(NOT QUAVER_NVCC)
    message(STATUS "nvcc not found: building without the CUDA engine")
    return()
  endif()
  set(CMAKE_CUDA_COMPILER ${QUAVER_NVCC})
endif()
# CMake 3.25 does not know how nvcc spells C++20, nor the architectures of CUDA 13.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA_ARCHITECTURES OFF)
enable_language(CUDA)
find_package(CUDAToolkit REQUIRED)

set(QUAVER_CUDA_FLAGS --expt-relaxed-constexpr -Xcompiler=-Wall,-Wextra --threads 2)
foreach(architecture ${QUAVER_CUDA_ARCHITECTURES})
  list(APPEND QUAVER_CUDA_FLAGS -gencode=arch=compute_${architecture},code=sm_${architecture})
endforeach()

file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/engine/cuda/*.cpp ${PROJECT_SOURCE_DIR}/src/engine/cuda/*.cu)
# The file of algorithms is also tested without CUDA, so it lies outside of that folder.
add_library(quaver_cuda MODULE ${sources} ${PROJECT_SOURCE_DIR}/src/engine/gemm_cache_file.cpp)
target_include_directories(quaver_cuda PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_include_directories(quaver_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
target_compile_features(quaver_cuda PRIVATE cuda_std_20 cxx_std_20)
target_compile_options(quaver_cuda PRIVATE
  $<$<COMPILE_LANGUAGE:CUDA>:${QUAVER_CUDA_FLAGS}>
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wno-restrict>)
# cudart is linked statically; cuBLASLt comes with CUDA; cuDNN is looked for at run time.
target_link_libraries(quaver_cuda PRIVATE quaver_tensor quaver_comm CUDA::cudart_static CUDA::cublasLt ${CMAKE_DL_LIBS})
target_link_options(quaver_cuda PRIVATE -Wl,--exclude-libs,ALL)
set_target_properties(quaver_cuda PROPERTIES OUTPUT_NAME quaver_cuda PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
install(TARGETS quaver_cuda LIBRARY DESTINATION lib COMPONENT cuda)  # where the program looks, from bin/
add_dependencies(program quaver_cuda)

# The blockwise GEMM against a plain kernel and cuBLASLt.
if(QUAVER_BENCHMARKS)
  add_executable(bench_block_gemm
    ${PROJECT_SOURCE_DIR}/bench/cuda/block_gemm.cu
    ${PROJECT_SOURCE_DIR}/src/engine/cuda/gemm/block_gemm.cu
    ${PROJECT_SOURCE_DIR}/src/engine/cuda/runtime/tensor_map.cpp
    ${PROJECT_SOURCE_DIR}/src/engine/cuda/runtime/gpu.cpp)
  target_include_directories(bench_block_gemm PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_include_directories(bench_block_gemm SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_features(bench_block_gemm PRIVATE cuda_std_20 cxx_std_20)
  target_compile_options(bench_block_gemm PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:${QUAVER_CUDA_FLAGS}>)
  target_link_libraries(bench_block_gemm PRIVATE CUDA::cudart_static CUDA::cublasLt)
  set_target_properties(bench_block_gemm PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endif()

# cuBLASLt alone, tuned by hand. nvcc 13.0 fails on it as C++20.
if(QUAVER_BENCHMARKS)
  add_executable(bench_tuned_gemm ${PROJECT_SOURCE_DIR}/bench/cuda/tuned_gemm.cu)
  target_include_directories(bench_tuned_gemm SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
  target_compile_options(bench_tuned_gemm PRIVATE ${QUAVER_CUDA_FLAGS})
  target_link_libraries(bench_tuned_gemm PRIVATE CUDA::cudart_static CUDA::cublasLt)
  set_target_properties(bench_tuned_gemm PROPERTIES CUDA_STANDARD 17 RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endif()

# Records the kernels of any program: for benchmarks.
if(QUAVER_BENCHMARKS AND TARGET CUDA::cupti)
  add_library(kernel_trace MODULE ${PROJECT_SOURCE_DIR}/bench/cuda/kernel_trace.cpp)
  target_compile_features(kernel_trace PRIVATE cxx_std_20)
  target_compile_options(kernel_trace PRIVATE -Wall -Wextra -fvisibility=hidden)
  target_link_libraries(kernel_trace PRIVATE CUDA::cupti)
  set_target_properties(kernel_trace PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR})
endif()
