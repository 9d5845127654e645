// The CUDA engine lives in a module of its own, quaver_cuda.so, which is loaded when it is asked for: the program runs
// on machines that have neither a GPU nor CUDA's libraries.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "engine/engine.h"

namespace quaver {

struct CudaOptions {
  int device = 0;
  Format wide = Format::bf16;  // f32 where a recipe wants more than BF16 holds
  std::function<void(const std::string&)> notice = {};
};

// Throws Error naming what is missing (the module, a library, a GPU) and the remedy.
std::unique_ptr<Engine> make_cuda_engine(const CudaOptions& options);

// Whether there is anything to try: the module lies beside the program and a driver is installed.
bool cuda_may_be_there();

// What the module exports, with C linkage so that its name is known.
extern "C" {
using MakeCudaEngine = Engine* (*)(const CudaOptions*);
}
inline constexpr const char* make_cuda_engine_symbol = "quaver_make_cuda_engine";

}  // namespace quaver
