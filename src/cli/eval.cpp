#include <cmath>
#include <fmt/format.h>

#include "cli/verbs.h"
#include "quaver/error.h"
#include "train/run.h"

namespace quaver {

int eval_verb(const RunArguments& arguments) {
  const auto run = open_run(arguments.run, arguments.settings, arguments.step,
                            [](const std::string& text) { fmt::print(stderr, "quaver: {}\n", text); });
  constexpr Size most = 1000;
  const auto loss = run->trainer->evaluate(arguments.batches > 0 ? arguments.batches : most);
  if (!loss) throw Error(arguments.run + ": there is no validation data", "set data.valid_path");
  const Size step = run->trainer->steps_done();
  const std::string& recipe = run->config.precision.recipe;
  if (arguments.output == Output::json) {
    fmt::print("{{\"step\":{},\"recipe\":\"{}\",\"validation_loss\":{},\"perplexity\":{}}}\n", step, recipe, *loss,
               std::exp(*loss));
  } else {
    fmt::print("step {}, {}: validation loss {:.5f} nats a token, perplexity {:.3f}\n", step, recipe, *loss,
               std::exp(*loss));
    if (run->data.best_loss) fmt::print("best possible: {:.5f}\n", *run->data.best_loss);
  }
  return 0;
}

}  // namespace quaver
