#include <fmt/format.h>
#include <unistd.h>

#include "cli/verbs.h"
#include "cli/verify.h"

namespace quaver {

int data_verb(const DataArguments& arguments) {
  if (!arguments.verify.empty()) {
    verify_shards(arguments.verify, arguments.output);
    return 0;
  }
  const bool terminal = isatty(STDERR_FILENO) != 0;
  std::string_view last_stage;
  const PrepareReport report = prepare(arguments.options, [&](const PrepareProgress& progress) {
    if (terminal && progress.total > 0) {
      fmt::print(stderr, "\r\033[K{}: {} %", progress.stage, 100 * progress.done / progress.total);
    } else if (progress.stage != last_stage) {
      fmt::print(stderr, "{} …\n", progress.stage);
    }
    last_stage = progress.stage;
  });
  if (terminal) fmt::print(stderr, "\r\033[K");
  fmt::print("{}\n", arguments.output == Output::json ? to_json(report) : to_text(report));
  return 0;
}

}  // namespace quaver
