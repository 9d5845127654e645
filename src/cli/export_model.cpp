#include <fmt/format.h>

#include "cli/verbs.h"
#include "quaver/error.h"
#include "train/resolved_config.h"
#include "train/run_folder.h"

namespace quaver {

int export_model_verb(const ExportModelArguments& arguments) {
  const std::filesystem::path run = arguments.run;
  const Config config = load_run_config(run, {});
  const CheckpointStore store = CheckpointStore::read_only(run);
  const auto tell = [](const std::string& text) { fmt::print(stderr, "quaver: {}\n", text); };
  const auto checkpoint = arguments.step ? std::optional(store.load(static_cast<std::uint64_t>(*arguments.step)))
                                         : newest_usable(store, tell);
  if (!checkpoint) throw Error(run.string() + " has no usable checkpoint", "train it first");
  const HfExport what{.model = resolved(config.model),
                      .weights = checkpoint->model(),
                      .original = run / pretrained_folder,
                      .tokenizer = run / tokenizer_folder,
                      .dtype = arguments.dtype,
                      .quantize = arguments.quantize};
  for (const std::filesystem::path& file : export_hf(what, arguments.out)) fmt::print("{}\n", file.string());
  return 0;
}

}  // namespace quaver
