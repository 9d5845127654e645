// Muon: the momentum's kernel, its orthogonalization by GEMMs, and the kernel that moves the weight.
#pragma once

#include "engine/cuda/gemm/gemm.h"
#include "engine/cuda/runtime/gpu.h"
#include "engine/engine.h"

namespace quaver::cuda {

void orthogonalize(Gpu& gpu, Gemms& gemms, const Orthogonalize& op);

// All of the update but the cast into op.quantized.
void muon(Gpu& gpu, Gemms& gemms, const Muon& op);

}  // namespace quaver::cuda
