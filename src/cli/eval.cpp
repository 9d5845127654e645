#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "cli/verbs.h"
#include "quaver/error.h"
#include "train/run.h"

namespace quaver {

namespace {

// "fp8-delayed", or "fp8-delayed (blocks.0.*: bf16)"
std::string text_of(const PrecisionConfig& precision) {
  std::string patterns;
  for (const auto& [pattern, recipe] : precision.layers) {
    patterns += fmt::format("{}{}: {}", patterns.empty() ? "" : ", ", pattern, recipe);
  }
  return precision.recipe + (patterns.empty() ? "" : " (" + patterns + ")");
}

}  // namespace

int eval_verb(const RunArguments& arguments) {
  const auto run = open_run(arguments.run, arguments.settings, arguments.step,
                            [](const std::string& text) { fmt::print(stderr, "quaver: {}\n", text); });
  constexpr Size most = 1000;
  const auto loss = run->trainer->evaluate(arguments.batches > 0 ? arguments.batches : most);
  if (!loss) throw Error(arguments.run + ": there is no validation data", "set data.valid_path");
  const Size step = run->trainer->steps_done();
  const PrecisionConfig& precision = run->config.precision;
  if (arguments.output == Output::json) {
    nlohmann::ordered_json figures{{"step", step}, {"recipe", precision.recipe}};
    if (!precision.layers.empty()) figures["layers"] = precision.layers;
    figures["validation_loss"] = *loss;
    figures["perplexity"] = std::exp(*loss);
    fmt::print("{}\n", figures.dump());
  } else {
    fmt::print("step {}, {}: validation loss {:.5f} nats a token, perplexity {:.3f}\n", step, text_of(precision), *loss,
               std::exp(*loss));
    if (run->data.best_loss) fmt::print("best possible: {:.5f}\n", *run->data.best_loss);
  }
  return 0;
}

}  // namespace quaver
