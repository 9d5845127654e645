// What the module reports about the machine before an engine is made: versions and GPUs.
#include <cublasLt.h>
#include <cuda_runtime.h>

#include "comm/shared_module.h"
#include "engine/cuda_module.h"
#include "quaver/error.h"

#if __has_include(<cudnn.h>)
#include "engine/cuda/attention/cudnn_graph.h"
#endif

namespace quaver::cuda {
namespace {

std::string two_parts(int version) {  // as CUDA writes them: 13000 is 13.0
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string cublaslt_version() {
  const std::size_t version = cublasLtGetVersion();
  return std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

void find_cudnn(CudaMachine& machine) {
#if __has_include(<cudnn.h>)
  try {
    machine.cudnn = CudnnLibrary().version();
  } catch (const Error& error) {
    machine.cudnn_problem = std::string(error.what()) + "; " + error.remedy();
  }
#else
  machine.cudnn_problem = "this build has no support for cuDNN";
#endif
}

CudaDevice device_of(int index) {
  cudaDeviceProp properties{};
  if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) return {.name = "a GPU that does not answer"};
  CudaDevice device{.name = properties.name,
                    .architecture = properties.major * 10 + properties.minor,
                    .multiprocessors = properties.multiProcessorCount,
                    .memory = properties.totalGlobalMem};
  char bus_id[32] = {};
  if (cudaDeviceGetPCIBusId(bus_id, sizeof(bus_id), index) == cudaSuccess) device.pci_bus_id = bus_id;
  return device;
}

}  // namespace
}  // namespace quaver::cuda

extern "C" __attribute__((visibility("default"))) void quaver_describe_cuda(quaver::CudaMachine* machine) {
  int version = 0;
  if (cudaDriverGetVersion(&version) == cudaSuccess) machine->driver = quaver::cuda::two_parts(version);
  if (cudaRuntimeGetVersion(&version) == cudaSuccess) machine->runtime = quaver::cuda::two_parts(version);
  machine->cublaslt = quaver::cuda::cublaslt_version();
  quaver::cuda::find_cudnn(*machine);
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  if (status != cudaSuccess) {
    machine->devices_problem = std::string(cudaGetErrorName(status)) + ", " + cudaGetErrorString(status);
    return;
  }
  for (int index = 0; index < count; ++index) machine->devices.push_back(quaver::cuda::device_of(index));
}

extern "C" __attribute__((visibility("default"))) const char* quaver_module_interface() {
  return quaver::module_interface();
}
