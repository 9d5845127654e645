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

}  // namespace

bool cuda_may_be_there() { return !find_module().empty() && has_driver(); }

std::unique_ptr<Engine> make_cuda_engine(const CudaOptions& options) {
  const fs::path module = find_module();
  if (module.empty()) {
    throw Error(std::string("the CUDA engine, ") + module_name + ", is not beside the program",
                "build on a machine that has nvcc, take the folder that `make dist` makes, or set QUAVER_CUDA_MODULE");
  }
  if (!has_driver()) {
    throw Error("this machine has no NVIDIA driver (libcuda.so.1 cannot be loaded)",
                "install the driver, or train on the processors with train.device = \"cpu\"");
  }
  void* handle = dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL);  // stays loaded: engines and their errors live in it
  if (handle == nullptr) {
    throw Error(std::string("the CUDA engine cannot be loaded: ") + dlerror(),
                "put the folder of CUDA's libraries (libcublasLt.so.13) into LD_LIBRARY_PATH");
  }
  const auto make = reinterpret_cast<MakeCudaEngine>(dlsym(handle, make_cuda_engine_symbol));
  if (make == nullptr) {
    throw Error(module.string() + " is not a CUDA engine of this version", "build the program and the module together");
  }
  return std::unique_ptr<Engine>(make(&options));
}

}  // namespace quaver
