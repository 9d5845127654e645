#include "config/load.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>

#include "config/check.h"
#include "config/settings.h"
#include "quaver/error.h"

namespace quaver {
namespace {

constexpr std::size_t largest_file = std::size_t{1} << 20;

std::string read_text(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    throw Error(path + ": is a folder, not a TOML file", "name the file, such as " + path + "/config.toml");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) throw Error(fmt::format("{}: cannot be opened: {}", path, std::strerror(errno)), "check the path");
  // Not by its size: the path may be a pipe, or a device that never ends.
  std::string text(largest_file + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) throw Error(path + ": cannot be read", "check that the file is readable");
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > largest_file)
    throw Error(path + ": is larger than 1 MiB, so it is no configuration", "check the path");
  return text;
}

void append(std::vector<Setting>& settings, std::vector<Setting> more) {
  settings.insert(settings.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

Config load_config(const ConfigSources& sources) {
  // Flags are read first: what stands behind one that is not known may look like a file's name.
  std::vector<Setting> flags;
  for (const std::string& flag : sources.flags) flags.push_back(read_flag(flag));
  std::vector<Setting> settings;
  for (const std::string& path : sources.files) append(settings, read_toml(read_text(path), path));
  for (const ConfigText& text : sources.texts) append(settings, read_toml(text.text, text.name));
  append(settings, std::move(flags));

  // The preset lies below files and flags, but is itself named by them.
  Config named;
  for (const Setting& setting : settings) {
    if (setting.key->name == "preset") apply(setting, named);
  }
  Config config;
  for (const Setting& setting : read_preset(find_preset(named.preset))) apply(setting, config);
  for (const Setting& setting : settings) apply(setting, config);
  check(config, Purpose::inspection);
  return config;
}

}  // namespace quaver
