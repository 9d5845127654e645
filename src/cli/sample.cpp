#include <fmt/format.h>

#include "cli/verbs.h"
#include "quaver/error.h"
#include "train/run.h"
#include "train/sampling.h"

namespace quaver {

int sample_verb(const SampleArguments& arguments) {
  const auto run = open_run(arguments.run, arguments.settings, arguments.step,
                            [](const std::string& text) { fmt::print(stderr, "quaver: {}\n", text); });
  if (run->data.train_images != nullptr) {
    throw Error(arguments.run + ": its model classifies images, so there is no text to sample",
                "sample a run that was trained on text, or classify with `quaver eval`");
  }
  if (run->data.tokenizer == nullptr) {
    throw Error(arguments.run + ": its data has no tokenizer, so there is no text to sample",
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
