#include "cli/named_model.h"

#include <fmt/format.h>

#include "quaver/error.h"

namespace quaver {

std::unique_ptr<OpenedRun> open_named(const NamedModel& model) {
  const Notice tell = [](const std::string& text) { fmt::print(stderr, "quaver: {}\n", text); };
  if (!model.run.empty()) return open_run(model.run, model.settings, model.step, tell);
  if (model.step) throw Error("--step names a checkpoint, and there is no run", "name the folder of a run");
  return open_pretrained(model.settings, tell);
}

std::string name_of(const OpenedRun& model) {
  return model.config.run.dir.empty() ? model.config.model.from : model.config.run.dir;
}

}  // namespace quaver
