#include "train/engine_choice.h"

#include "precision/recipe.h"
#include "quaver/error.h"

namespace quaver {

// BF16 between GEMMs would undo what operands with longer mantissas are chosen for, and FP16 what a wider range is.
Format gpu_high_precision(const PrecisionConfig& precision) {
  const Recipe recipe = make_recipe(precision.recipe, precision);
  if (is_all_in(recipe, Format::f16)) return Format::f16;
  const bool exact = has_operand_in(recipe, Format::f32) || has_operand_in(recipe, Format::tf32) ||
                     has_operand_in(recipe, Format::f16);
  return exact ? Format::f32 : Format::bf16;
}

CudaOptions gpu_options(const PrecisionConfig& precision) {
  const bool rounds = is_all_in(make_recipe(precision.recipe, precision), Format::tf32);
  return {.high_precision = gpu_high_precision(precision), .float_attention = rounds ? Format::tf32 : Format::f32};
}

std::unique_ptr<Engine> make_engine(const Config& config, const std::function<void(const std::string&)>& notice,
                                    const Launch& launch) {
  const auto on_gpu = [&] {
    CudaOptions options = gpu_options(config.precision);
    options.device = launch.size > 1 ? gpu_of_rank(launch.local_rank) : 0;
    options.notice = notice;
    return make_cuda_engine(options);
  };
  switch (config.train.device) {
    case DeviceChoice::cuda:
      return on_gpu();
    case DeviceChoice::cpu:
      break;
    case DeviceChoice::automatic:
      if (!cuda_may_be_there()) break;
      try {
        return on_gpu();
      } catch (const Error& error) {
        if (notice) notice(std::string("training on the CPU: ") + error.what());
      }
      break;
  }
  return make_cpu_engine(config.train.threads);
}

std::unique_ptr<Communicator> connect_devices(Communicator& hosts, Engine& engine, const Launch& launch) {
  hosts.attach(engine.device());
  const bool gpu = engine.device().hardware().kind == HardwareKind::gpu;
  if (hosts.is_alone() || !gpu || launch.launcher != Launcher::mpi) return nullptr;
  auto ranks = make_nccl_communicator({.launch = launch, .device = gpu_of_rank(launch.local_rank), .hosts = &hosts});
  ranks->attach(engine.device());
  return ranks;
}

}  // namespace quaver
