#include <fmt/format.h>

#include "cli/named_model.h"
#include "cli/verbs.h"
#include "quaver/error.h"
#include "train/run.h"
#include "train/sampling.h"

namespace quaver {

int sample_verb(const SampleArguments& arguments) {
  const auto run = open_named({arguments.run, arguments.step, arguments.settings});
  const std::string name = name_of(*run);
  if (run->data.train_images != nullptr) {
    throw Error(name + ": its model classifies images, so there is no text to sample",
                "sample a run that was trained on text, or classify with `quaver eval`");
  }
  if (run->data.tokenizer == nullptr) {
    throw Error(name + ": its data has no tokenizer, so there is no text to sample",
                "sample a run that was trained on text, or set data.tokenizer");
  }
  for (Size i = 0; i < arguments.count; ++i) {
    const SampleOptions options{.prompt = arguments.prompt,
                                .tokens = arguments.tokens,
                                .temperature = arguments.temperature,
                                .top_k = arguments.top_k,
                                .seed = arguments.seed + static_cast<std::uint64_t>(i)};
    fmt::print("{}{}\n", i > 0 ? "────\n" : "", sample_text(*run->trainer, *run->data.tokenizer, options));
  }
  return 0;
}

}  // namespace quaver
