#include "engine/cuda_module.h"

#include <cstdlib>
#include <dlfcn.h>

#include "comm/shared_module.h"
#include "quaver/error.h"

namespace quaver {

namespace {

const SharedModule cuda_module{
    .name = "quaver_cuda.so",
    .variable = "QUAVER_CUDA_MODULE",
    .what = "the CUDA engine",
    .remedy_absent =
        "build on a machine that has nvcc, take the folder that `make dist` makes, or set QUAVER_CUDA_MODULE",
    .remedy_broken = "put the folder of CUDA's libraries (libcublasLt.so.13) into LD_LIBRARY_PATH"};

bool has_driver() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
  if (driver == nullptr) return false;
  dlclose(driver);
  return true;
}

template <class Function>
Function find_function(const char* symbol) {
  if (!cuda_module.find().empty() && !has_driver()) {
    throw Error("this machine has no NVIDIA driver (libcuda.so.1 cannot be loaded)",
                "install the driver, or train on the processors with train.device = \"cpu\"");
  }
  return cuda_module.function<Function>(symbol);
}

}  // namespace

bool cuda_may_be_there() { return !cuda_module.find().empty() && has_driver(); }

std::unique_ptr<GpuEngine> make_cuda_engine(const CudaOptions& options) {
  return std::unique_ptr<GpuEngine>(find_function<MakeCudaEngine>(make_cuda_engine_symbol)(&options));
}

std::unique_ptr<Communicator> make_nccl_communicator(const NcclOptions& options) {
  return std::unique_ptr<Communicator>(find_function<MakeNcclCommunicator>(make_nccl_communicator_symbol)(&options));
}

int gpu_of_rank(int local_rank) {
  CudaMachine machine;
  find_function<DescribeCuda>(describe_cuda_symbol)(&machine);
  const auto gpus = static_cast<int>(machine.devices.size());
  if (local_rank < gpus) return local_rank;
  if (gpus > 0 && std::getenv("QUAVER_SHARE_GPU") != nullptr) return local_rank % gpus;  // tests of NCCL on one GPU
  throw Error(host_name() + " has " + std::to_string(gpus) + " GPUs, too few for a rank number " +
                  std::to_string(local_rank) + " on it",
              "start as many ranks on each machine as it has GPUs; CUDA_VISIBLE_DEVICES may hide some");
}

CudaReport inspect_cuda() {
  CudaReport report;
  report.searched = cuda_module.places();
  report.module = cuda_module.find();
  try {
    const auto describe = find_function<DescribeCuda>(describe_cuda_symbol);
    describe(&report.machine);
    report.state = CudaState::ready;
    if (!report.machine.devices.empty()) return report;
    const std::string& words = report.machine.devices_problem;
    const bool none = words.empty() || words.starts_with("cudaErrorNoDevice");
    report.state = none ? CudaState::no_gpu : CudaState::unusable;
    report.problem = words.empty() ? "CUDA finds no GPU on this machine" : "CUDA finds no GPU: " + words;
    report.remedy = none ? "check `nvidia-smi` and CUDA_VISIBLE_DEVICES"
                         : "update the driver: the module was built for CUDA " + report.machine.runtime;
  } catch (const Error& error) {
    report.state = report.module.empty() ? CudaState::absent
                   : !has_driver()       ? CudaState::no_driver
                                         : CudaState::unusable;
    report.problem = error.what();
    report.remedy = error.remedy();
  }
  return report;
}

}  // namespace quaver
