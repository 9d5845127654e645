#include <fmt/format.h>
#include <fmt/ranges.h>
#include <iostream>
#include <optional>

#include "cli/verbs.h"
#include "io/file_io.h"
#include "quaver/error.h"
#include "serve/store_handle.h"
#include "train/run_record.h"

namespace quaver {

namespace {

// The run that the text is the id of, else the one that it is the name of.
std::string find_run(const StoreReader& store, const std::string& text) {
  std::vector<std::string> named;
  std::vector<std::string> all;
  for (const RunSummary& run : store.runs()) {
    if (run.id == text) return run.id;
    if (run.name == text || run.trained_name == text) named.push_back(run.id);
    if (all.size() < 20) all.push_back(run.name);
  }
  if (named.size() == 1) return named[0];
  if (named.empty()) {
    throw Error(fmt::format("there is no run '{}' in {}", text, store.path().string()),
                all.empty() ? "the store has no runs" : fmt::format("it has {}", fmt::join(all, ", ")));
  }
  throw Error(fmt::format("{} runs are named '{}'", named.size(), text),
              fmt::format("name one by its id: {}", fmt::join(named, ", ")));
}

// The run whose folder was named, where it was one and not a folder of runs.
std::optional<std::string> run_of(const std::filesystem::path& named) {
  constexpr std::uint64_t longest_file = 4096;
  const std::filesystem::path file = named / "run_id";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored)) return std::nullopt;
  auto id = parse_run_id(read_file(file, longest_file));
  if (!id) throw Error(file.string() + " is damaged", "name the folder of runs, and the run with --run");
  return id;
}

// Tells every damaged BLOB of the runs, or of all of them. True: there are some.
bool report_damage(const StoreReader& store, std::vector<std::string> runs) {
  if (runs.empty()) {
    for (const RunSummary& run : store.runs()) {
      if (!run.deleted) runs.push_back(run.id);
    }
  }
  bool any = false;
  for (const std::string& run : runs) {
    for (const DamagedBlob& blob : store.damaged_blobs(run)) {
      std::cerr << fmt::format("quaver: run {}, step {}: a BLOB of the table {} is damaged and was left out\n", run,
                               blob.step, blob.table);
      any = true;
    }
  }
  if (any) std::cerr << "  → what was written lacks these values; the run folders keep their own logs\n";
  return any;
}

}  // namespace

int export_verb(const ExportArguments& arguments) {
  const StoreReader store(find_store(arguments.path));
  std::vector<std::string> runs;
  for (const std::string& text : arguments.runs) runs.push_back(find_run(store, text));
  if (runs.empty()) {
    if (const auto id = run_of(arguments.path)) runs.push_back(find_run(store, *id));
  }
  const auto files = export_runs(store, runs, arguments.out, arguments.options);
  for (const std::filesystem::path& file : files) std::cout << file.string() << '\n';
  if (files.empty()) std::cerr << "quaver: " << store.path().string() << " has no runs, nothing was written\n";
  return report_damage(store, runs) ? 1 : 0;
}

}  // namespace quaver
