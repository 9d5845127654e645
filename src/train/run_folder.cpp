#include "train/run_folder.h"

#include <cerrno>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config/dump.h"
#include "config/load.h"
#include "io/file_io.h"
#include "quaver/error.h"
#include "train/trainer_state.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

fs::path config_path(const fs::path& directory) {
  fs::path path = directory / "config.toml";
  if (!fs::exists(path)) {
    throw Error(directory.string() + " holds no run: there is no config.toml",
                "name the folder that `quaver train` made, for example runs/tiny-bf16-1");
  }
  return path;
}

// A folder in a place that others write to: nobody else may have made it.
void make_private_folder(const fs::path& folder) {
  if (::mkdir(folder.c_str(), 0700) == 0) return;
  if (errno != EEXIST) throw system_error("cannot make the folder", folder, errno);
  struct stat status {};
  if (::lstat(folder.c_str(), &status) != 0) throw system_error("cannot look at", folder, errno);
  if (!S_ISDIR(status.st_mode) || status.st_uid != ::geteuid()) {
    throw Error(folder.string() + " is not a folder of this user", "remove it, or set run.fallback");
  }
}

}  // namespace

std::string model_name(const Config& config) {
  if (config.model.from.empty()) return config.preset;
  const fs::path folder = fs::absolute(config.model.from).lexically_normal();
  return (folder.has_filename() ? folder : folder.parent_path()).filename().string();
}

fs::path run_directory(const Config& config) {
  if (!config.run.dir.empty()) return config.run.dir;
  const std::string name = config.run.name.empty()
                               ? fmt::format("{}-{}-{}", model_name(config), config.precision.recipe, config.train.seed)
                               : config.run.name;
  return fs::path("runs") / name;
}

Config load_config_file(const fs::path& directory) {
  return load_config(
      {.files = {config_path(directory).string()}, .texts = {}, .flags = {}, .model_folder = ModelFolder::recorded});
}

Config load_run_config(const fs::path& directory, const std::vector<std::string>& flags) {
  ConfigSources sources{
      .files = {config_path(directory).string()}, .texts = {}, .flags = flags, .model_folder = ModelFolder::recorded};
  const std::string trained = CheckpointStore::read_only(directory).latest_run();
  if (!trained.empty()) {
    Config as_trained = parse_provenance(trained, directory.string()).config;
    as_trained.run = load_config_file(directory).run;  // where a run is kept is not the checkpoint's to say
    sources.files.clear();
    sources.texts.push_back({"the checkpoint's config", to_toml(as_trained)});
  }
  Config config = load_config(sources);
  config.run.dir = directory.string();  // wherever it was when it was trained
  return config;
}

void write_run_files(const fs::path& directory, const RunFiles& files) {
  make_folder(directory);
  write_file_atomically(directory / "config.toml", files.config);
  write_file_atomically(directory / "plan.toml", files.plan);
  write_file_atomically(directory / "env.json", files.environment);
  write_file_atomically(directory / "run_id", files.id + "\n");
}

std::optional<Checkpoint> newest_usable(const CheckpointStore& store,
                                        const std::function<void(const std::string&)>& warning) {
  const auto report = [&](const fs::path& path, const std::string& why) {
    warning(fmt::format("{} is not usable: {}", path.string(), why));
  };
  const auto accept = [](const Checkpoint& checkpoint) {
    parse_state(checkpoint.state(), checkpoint.step(), (checkpoint.path() / "state.json").string());
    if (!checkpoint.run().empty()) parse_provenance(checkpoint.run(), (checkpoint.path() / "run.json").string());
  };
  return store.latest_good(report, accept);
}

Provenance provenance_of(const Checkpoint& checkpoint, const fs::path& directory, const Config& asked) {
  const Config file = load_config_file(directory);
  if (checkpoint.run().empty()) return {.id = "", .config = file, .data = {}, .changes = {}};
  Provenance trained = parse_provenance(checkpoint.run(), (checkpoint.path() / "run.json").string());
  refuse_edited_config(file, trained, asked, static_cast<Size>(checkpoint.step()),
                       (directory / "config.toml").string());
  return trained;
}

fs::path make_fallback_folder(const Config& config, const fs::path& directory, const std::string& id) {
  const std::string name =
      fmt::format("quaver-{}-{}", fs::absolute(directory).lexically_normal().filename().string(), id);
  if (!config.run.fallback.empty()) {
    make_folder(config.run.fallback);
    make_folder(fs::path(config.run.fallback) / name);
    return fs::path(config.run.fallback) / name;
  }
  fs::path folder = fs::temp_directory_path() / name;
  make_private_folder(folder);
  return folder;
}

}  // namespace quaver
