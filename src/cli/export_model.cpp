#include <fmt/format.h>

#include "cli/verbs.h"
#include "interop/peft_export.h"
#include "quaver/error.h"
#include "train/resolved_config.h"
#include "train/run_folder.h"

namespace quaver {

namespace {

void print(const std::vector<std::filesystem::path>& files) {
  for (const std::filesystem::path& file : files) fmt::print("{}\n", file.string());
}

}  // namespace

int export_model_verb(const ExportModelArguments& arguments) {
  const std::filesystem::path run = arguments.run;
  const Config config = load_run_config(run, {});
  const CheckpointStore store = CheckpointStore::read_only(run);
  const auto tell = [](const std::string& text) { fmt::print(stderr, "quaver: {}\n", text); };
  const auto checkpoint = arguments.step ? std::optional(store.load(static_cast<std::uint64_t>(*arguments.step)))
                                         : newest_usable(store, tell);
  if (!checkpoint) throw Error(run.string() + " has no usable checkpoint", "train it first");
  if (arguments.adapter) {
    const PeftExport what{.model = resolved(config.model),
                          .weights = checkpoint->model(),
                          .base = config.model.from,
                          .dtype = arguments.dtype};
    print(export_peft(what, arguments.out));
    return 0;
  }
  const HfExport what{.model = resolved(config.model),
                      .weights = checkpoint->model(),
                      .original = run / pretrained_folder,
                      .tokenizer = run / tokenizer_folder,
                      .dtype = arguments.dtype,
                      .quantize = arguments.quantize};
  print(export_hf(what, arguments.out));
  return 0;
}

}  // namespace quaver
