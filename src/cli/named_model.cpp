#include "cli/named_model.h"

#include <fmt/format.h>

#include "quaver/error.h"

namespace quaver {

std::unique_ptr<OpenedRun> open_named(const NamedModel& model) {
  const Notice tell = [first = model.launch.rank == 0](const std::string& text) {
    if (first) fmt::print(stderr, "quaver: {}\n", text);
  };
  if (!model.run.empty()) return open_run(model.run, model.settings, model.step, tell, model.launch);
  if (model.step) throw Error("--step names a checkpoint, and there is no run", "name the folder of a run");
  return open_pretrained(model.settings, tell, model.launch);
}

std::string name_of(const OpenedRun& model) {
  return model.config.run.dir.empty() ? model.config.model.from : model.config.run.dir;
}

}  // namespace quaver
