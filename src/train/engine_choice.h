// Which engine a config trains on.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/launch.h"
#include "config/config.h"
#include "engine/cuda_module.h"

namespace quaver {

// train.device, or for "auto" a GPU where one can be used; why one was not is told as a notice. Of the ranks of a
// machine each has its own GPU.
std::unique_ptr<Engine> make_engine(const Config& config, const std::function<void(const std::string&)>& notice,
                                    const Launch& launch = {});

// The ranks as the engine's operations reach them: GPUs are connected by NCCL. Null where `hosts` does it. Collective.
std::unique_ptr<Communicator> connect_devices(Communicator& hosts, Engine& engine, const Launch& launch);

// What a GPU stores high-precision matrices in under the recipe.
Format gpu_high_precision(const PrecisionConfig& precision);

// How a GPU's engine is made for the recipe, the device left open.
CudaOptions gpu_options(const PrecisionConfig& precision);

}  // namespace quaver
