#include "study/estimate.h"

#include <fmt/format.h>

#include "cli/verbs.h"
#include "config/load.h"

namespace quaver {

int estimate_verb(const EstimateArguments& arguments) {
  const Config config = load_config({.files = arguments.config.files, .texts = {}, .flags = arguments.config.settings});
  EstimateOptions options;
  options.gpu = arguments.gpu;
  if (!arguments.gpu_memory.empty()) options.gpu_memory = parse_bytes(arguments.gpu_memory);
  if (arguments.timing == EstimateTiming::leave_out) options.timing = Timing::leave_out;
  options.tokens_per_second = arguments.tokens_per_second;
  options.bench = arguments.bench;
  if (arguments.gpus) {
    options.cluster = make_cluster({.gpus = *arguments.gpus, .machines = arguments.nodes, .links = arguments.links});
    options.gradient_bytes = arguments.gradients == "bf16" ? 2 : 4;
    options.overlap = arguments.overlap;
  }
  const Estimate result = estimate(config, options);
  fmt::print("{}", arguments.output == Output::json ? estimate_json(result) + "\n" : estimate_text(result));
  return 0;
}

}  // namespace quaver
