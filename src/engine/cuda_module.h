// The CUDA engine lives in a module of its own, quaver_cuda.so, which is loaded when it is asked for: the program runs
// on machines that have neither a GPU nor CUDA's libraries.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/launch.h"
#include "engine/engine.h"

namespace quaver {

inline constexpr Size default_logits_limit = Size{1} << 30;

struct CudaOptions {
  int device = 0;
  Format high_precision = Format::bf16;  // or f16, or f32 where a recipe wants more than 16 bits hold
  Format float_attention = Format::f32;  // or tf32: what attention multiplies matrices in FP32 in
  std::function<void(const std::string&)> notice = {};
  Size logits_limit = default_logits_limit;  // bytes of logits, and of codes of their gradient, that are there at once
};

// The engine of a GPU, for programs that have streams of their own. Without on_stream its operations go onto its own
// stream, own_stream(). Streams are cudaStream_t.
class GpuEngine : public Engine {
 public:
  virtual void* own_stream() const = 0;

  // Calls work() with the GPU chosen for this thread; its operations go onto the stream, behind all that went onto
  // others in earlier calls. Throws Error where a CUDA graph is captured from the stream.
  virtual void on_stream(void* stream, const std::function<void()>& work) = 0;
};

// Throws Error naming what is missing (the module, a library, a GPU) and the remedy.
std::unique_ptr<GpuEngine> make_cuda_engine(const CudaOptions& options);

// Whether loading may succeed: the module is beside the program and a driver is installed.
bool cuda_may_be_there();

// Connects ranks that have a GPU each. Collective. Throws Error naming what is missing (NCCL, a GPU) and the remedy.
struct NcclOptions {
  Launch launch;
  int device = 0;                 // the number of this rank's GPU
  Communicator* hosts = nullptr;  // what hosts say to each other goes this way; null: over NCCL as well
};
std::unique_ptr<Communicator> make_nccl_communicator(const NcclOptions& options);

// The GPU of the rank with this number on its machine. Error where there are fewer GPUs than ranks there.
int gpu_of_rank(int local_rank);

struct CudaDevice {
  std::string name = {};
  int architecture = 0;  // 90 for Hopper
  int multiprocessors = 0;
  std::size_t memory = 0;       // bytes, used or not
  std::string pci_bus_id = {};  // as NVML expects it
};

// What the module finds once it is loaded. Versions are empty where a library is not found.
struct CudaMachine {
  std::string driver;         // the CUDA version that the driver knows, "13.0"
  std::string runtime;        // the one the module was built with
  std::string cublaslt;       // "13.1.0"
  std::string cudnn;          // "9.19.0"
  std::string cudnn_problem;  // why there is none
  std::vector<CudaDevice> devices;
  std::string devices_problem;  // why there are none: CUDA's own words
};

// How far loading the module gets. absent and no_driver are not errors: the machine does not need it.
enum class CudaState : std::uint8_t { absent, no_driver, unusable, no_gpu, ready };

struct CudaReport {
  CudaState state = CudaState::absent;
  std::filesystem::path module;                 // empty: not found
  std::vector<std::filesystem::path> searched;  // where it was looked for
  std::string problem;                          // what is missing; empty where ready
  std::string remedy;
  CudaMachine machine;  // set from no_gpu on
};

// Loads the module and asks it; throws nothing.
CudaReport inspect_cuda();

// What the module exports, with C linkage so that their names are known.
extern "C" {
using MakeCudaEngine = GpuEngine* (*)(const CudaOptions*);
using DescribeCuda = void (*)(CudaMachine*);
using MakeNcclCommunicator = Communicator* (*)(const NcclOptions*);
}
inline constexpr const char* make_cuda_engine_symbol = "quaver_make_cuda_engine";
inline constexpr const char* describe_cuda_symbol = "quaver_describe_cuda";
inline constexpr const char* make_nccl_communicator_symbol = "quaver_make_nccl_communicator";

}  // namespace quaver
