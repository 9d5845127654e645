#include "engine/cuda_module.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <vector>

#include "quaver/error.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

constexpr const char* module_name = "quaver_cuda.so";

// $QUAVER_CUDA_MODULE, the program's own folder, and lib/ beside it.
std::vector<fs::path> module_places() {
  if (const char* chosen = std::getenv("QUAVER_CUDA_MODULE")) return {fs::path(chosen)};
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  return {program / module_name, program / "lib" / module_name, program.parent_path() / "lib" / module_name,
          program.parent_path() / module_name};
}

fs::path find_module() {
  std::error_code ignored;
  for (const fs::path& place : module_places()) {
    if (fs::exists(place, ignored)) return place;
  }
  return {};
}

bool has_driver() {
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
  if (driver == nullptr) return false;
  dlclose(driver);
  return true;
}

// The module's functions. Throws Error naming what is missing and the remedy. It stays loaded: engines and their errors
// live in it.
template <class Function>
Function find_function(const char* symbol) {
  const fs::path module = find_module();
  if (module.empty()) {
    throw Error(std::string("the CUDA engine, ") + module_name + ", is not beside the program",
                "build on a machine that has nvcc, take the folder that `make dist` makes, or set QUAVER_CUDA_MODULE");
  }
  if (!has_driver()) {
    throw Error("this machine has no NVIDIA driver (libcuda.so.1 cannot be loaded)",
                "install the driver, or train on the processors with train.device = \"cpu\"");
  }
  void* handle = dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    throw Error(std::string("the CUDA engine cannot be loaded: ") + dlerror(),
                "put the folder of CUDA's libraries (libcublasLt.so.13) into LD_LIBRARY_PATH");
  }
  const auto function = reinterpret_cast<Function>(dlsym(handle, symbol));
  if (function == nullptr) {
    throw Error(module.string() + " is not a CUDA engine of this version", "build the program and the module together");
  }
  return function;
}

}  // namespace

bool cuda_may_be_there() { return !find_module().empty() && has_driver(); }

std::unique_ptr<Engine> make_cuda_engine(const CudaOptions& options) {
  return std::unique_ptr<Engine>(find_function<MakeCudaEngine>(make_cuda_engine_symbol)(&options));
}

CudaReport inspect_cuda() {
  CudaReport report;
  report.searched = module_places();
  report.module = find_module();
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
