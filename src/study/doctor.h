// What this machine can do: CPU, GPUs, libraries, what each recipe runs as, and one FP8 GEMM on every engine
// checked and timed. Nothing about a missing GPU is a fault; something that is there and does not work is.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/cuda_module.h"
#include "engine/nvml.h"

namespace quaver {

struct CpuReport {
  std::string model;
  int cores = 0;                          // that this process may use
  std::vector<std::string> instructions;  // of those that matter here
  std::string openblas;                   // the kernels it multiplies with
  Size memory = 0;                        // bytes
  Size memory_available = 0;
};

// The folder where the CUDA engine keeps which algorithm of a GEMM was fastest.
struct CacheReport {
  std::string folder;   // empty: there is no place for one
  std::string problem;  // why nothing can be written there; empty: it can
};

// A recipe's fprop, dgrad and wgrad together: the least of them, and in words what they run as.
struct RecipeSupport {
  std::string recipe;
  std::string summary;
  Support cpu;
  Support gpu;  // unavailable, and why, without one
};

// One GEMM of E4M3 operands, against a reference.
struct GemmCheck {
  std::string engine = {};
  std::string against = {};
  double error = 0;  // the largest, over the sum of the magnitudes that were added
  double bound = 0;
  Size different_values = 0;  // of operands whose casts should have given the same codes
  Size extent = 0;            // of the matrices that were timed
  double milliseconds = 0;
  double tflops = 0;
  std::string failure = {};  // an exception's words; empty: it ran

  bool good() const { return failure.empty() && error <= bound && different_values == 0; }
};

struct Problem {
  std::string what;
  std::string remedy;
};

struct DoctorReport {
  std::string version;
  std::string compiler;
  CpuReport cpu;
  std::string driver;  // of NVIDIA; empty: none
  CudaReport cuda;
  std::optional<GpuCard> card;
  std::optional<GpuReading> reading;
  std::string gpu_engine;  // its name, with the libraries it uses; empty: there is none
  CacheReport cache;
  std::vector<RecipeSupport> recipes;
  std::vector<GemmCheck> checks;
  std::vector<Problem> problems;  // what is broken
  std::vector<Problem> advice;    // what is missing and might be wanted

  bool healthy() const { return problems.empty(); }
};

DoctorReport examine();

// What a recipe's GEMMs run as on this engine.
Support recipe_support(Engine& engine, const std::string& recipe);

// A GEMM of two [extent × extent] matrices in E4M3 on the engine against double precision.
GemmCheck check_gemm(Engine& engine, Size extent, double bound);
// The same against another engine, which must cast to the same codes.
GemmCheck check_gemm(Engine& engine, Engine& reference, Size extent, double bound);

std::string doctor_text(const DoctorReport& report);
std::string doctor_json(const DoctorReport& report);

}  // namespace quaver
