#include "train/provenance.h"

#include <algorithm>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <utility>

#include "config/dump.h"
#include "config/load.h"
#include "config/schema.h"
#include "config/value_text.h"
#include "quaver/error.h"
#include "train/run_record.h"

namespace quaver {

using nlohmann::json;
using nlohmann::ordered_json;

namespace {

ordered_json json_of(const std::vector<SettingChange>& changes) {
  ordered_json list = ordered_json::array();
  for (const SettingChange& change : changes) {
    list.push_back({{"step", change.step}, {"key", change.key}, {"before", change.before}, {"after", change.after}});
  }
  return list;
}

// JSON would give a fraction without its digits, and a large number without its upper bits.
template <class Integer>
Integer count_in(const json& entry, const char* name) {
  const json& value = entry.at(name);
  if (!value.is_number_unsigned() || !std::in_range<Integer>(value.get<std::uint64_t>())) {
    throw Error(fmt::format("'{}' is {}", name, value.dump()));
  }
  return value.get<Integer>();
}

std::vector<SettingChange> changes_of(const json& list) {
  std::vector<SettingChange> changes;
  for (const json& entry : list) {
    changes.push_back({count_in<Size>(entry, "step"), entry.at("key").get<std::string>(),
                       entry.at("before").get<std::string>(), entry.at("after").get<std::string>()});
  }
  return changes;
}

ordered_json json_of(const DataIdentity& data) {
  return {{"train_hash", data.train_hash},         {"train_tokens", data.train_tokens},
          {"valid_hash", data.valid_hash},         {"valid_tokens", data.valid_tokens},
          {"tokenizer_hash", data.tokenizer_hash}, {"vocab_size", data.vocab_size}};
}

DataIdentity identity_of(const json& entry) {
  return {.train_hash = entry.at("train_hash").get<std::string>(),
          .valid_hash = entry.at("valid_hash").get<std::string>(),
          .train_tokens = count_in<std::uint64_t>(entry, "train_tokens"),
          .valid_tokens = count_in<std::uint64_t>(entry, "valid_tokens"),
          .tokenizer_hash = entry.at("tokenizer_hash").get<std::string>(),
          .vocab_size = count_in<int>(entry, "vocab_size")};
}

// A resumed run that changes a setting writes its checkpoint before config.toml; killed in between, it leaves the file
// as it was before that change.
bool is_older_copy(const SettingChange& difference, const std::vector<SettingChange>& changes) {
  return std::any_of(changes.begin(), changes.end(), [&](const SettingChange& change) {
    return change.step == difference.step && change.key == difference.key && change.before == difference.after &&
           change.after == difference.before;
  });
}

// How the edit is asked for instead. A table's flags are those of its entries.
std::string flag_for(const SettingChange& edit) {
  const Key* key = find_key(edit.key);
  if (key == nullptr || !key->is_table()) {
    return fmt::format("a flag, --{}={}, which is recorded", edit.key, edit.after);
  }
  return fmt::format("flags for its entries, '--{}.{}', which are recorded (--{}={{}} drops all of them)", edit.key,
                     key->type == ValueType::recipe_table ? "NAME={ … }" : "\"PATTERN\"=VALUE", edit.key);
}

}  // namespace

std::string to_json(const Provenance& provenance) {
  return ordered_json{{"id", provenance.id},
                      {"config", to_toml(provenance.config)},
                      {"data", json_of(provenance.data)},
                      {"changes", json_of(provenance.changes)}}
      .dump(1);
}

std::string changes_json(const std::vector<SettingChange>& changes) { return json_of(changes).dump(); }

Provenance parse_provenance(std::string_view text, std::string_view source) {
  const auto damaged = [&](const std::string& why) {
    return Error(fmt::format("{}: not what a run writes: {}", source, why), "resume from an older checkpoint");
  };
  try {
    // Not ordered_json: it copies values as it grows, by a function that calls itself for every level of nesting.
    const json read = json::parse(text);
    const ConfigText config{fmt::format("{} (config)", source), read.at("config").get<std::string>()};
    const auto id = read.at("id").get<std::string>();
    if (!id.empty() && parse_run_id(id) != id) throw Error(fmt::format("'{}' is no run's id", id));
    return {.id = id,
            .config = load_config({.files = {}, .texts = {config}, .flags = {}, .model_folder = ModelFolder::recorded}),
            .data = identity_of(read.at("data")),
            .changes = changes_of(read.at("changes"))};
  } catch (const json::exception& error) {
    throw damaged(error.what());
  } catch (const Error& error) {
    throw damaged(error.what());
  }
}

std::vector<SettingChange> setting_changes(const Config& before, const Config& after, Size step) {
  std::vector<SettingChange> changes;
  for (const Key& key : schema()) {
    if (key.section() == "run") continue;
    const Value old_value = key.get(before);
    const Value new_value = key.get(after);
    if (old_value != new_value) changes.push_back({step, key.name, toml_value(old_value), toml_value(new_value)});
  }
  return changes;
}

void refuse_edited_config(const Config& file, const Provenance& trained, const Config& asked, Size step,
                          const std::string& path) {
  for (const SettingChange& edit : setting_changes(trained.config, file, step)) {
    const Key* key = find_key(edit.key);
    const bool asked_for = key != nullptr && key->get(asked) == key->get(file);
    if (asked_for || is_older_copy(edit, trained.changes)) continue;
    throw Error(fmt::format("{} says {} = {}, but the checkpoint of step {} was trained with {}", path, edit.key,
                            edit.after, step, edit.before),
                fmt::format("change a run with {}; or put {} back into the file", flag_for(edit), edit.before));
  }
}

}  // namespace quaver
