#include "config/load.h"

#include <cstdint>
#include <iterator>

#include "config/check.h"
#include "config/settings.h"
#include "io/file_io.h"

namespace quaver {
namespace {

constexpr std::uint64_t largest_file = std::uint64_t{1} << 20;

void append(std::vector<Setting>& settings, std::vector<Setting> more) {
  settings.insert(settings.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

Config load_config(const ConfigSources& sources) {
  // Flags are read first: what stands behind one that is not known may look like a file's name.
  std::vector<Setting> flags;
  for (const std::string& flag : sources.flags) flags.push_back(read_flag(flag));
  std::vector<Setting> settings;
  for (const std::string& path : sources.files) append(settings, read_toml(read_file(path, largest_file), path));
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
