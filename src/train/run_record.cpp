#include "train/run_record.h"

#include <chrono>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <random>

#include "config/dump.h"
#include "config/schema.h"
#include "config/value_text.h"
#include "io/file_io.h"
#include "train/run_folder.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

std::string new_id() {
  std::random_device device;
  std::string id;
  for (int i = 0; i < 2; ++i) id += fmt::format("{:08x}", device());
  return id;
}

std::vector<std::pair<std::string, std::string>> config_texts(const Config& config) {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const Key& key : schema()) texts.emplace_back(key.name, toml_value(key.get(config)));
  return texts;
}

// Equal for runs that differ in seed and name only.
std::string group_of(Config config) {
  config.train.seed = TrainConfig{}.seed;
  return fingerprint(config);
}

SiteState state_of(const SiteSpec& spec, const std::string& recipe, const std::string& reason) {
  return {.rows = std::string(info(spec.rows.format).name),
          .columns = std::string(info(spec.columns.format).name),
          .block = name_of(spec.rows.block),
          .policy = name_of(spec.rows.policy),
          .recipe = recipe,
          .reason = reason};
}

std::vector<SiteDescription> sites_of(const Trainer& trainer) {
  std::vector<SiteDescription> sites;
  for (std::size_t i = 0; i < trainer.plan().rows.size(); ++i) {
    const auto& entry = trainer.book().entries()[i];
    const PlanRow& row = trainer.plan().rows[i];
    const bool as_planned = row.spec == entry->site.spec;
    const std::string reason = as_planned || entry->changes.empty() ? row.reason : entry->changes.back().reason;
    sites.push_back(
        {row.site, row.layer, std::string(name_of(row.role)), state_of(entry->site.spec, row.recipe, reason)});
  }
  return sites;
}

std::vector<StatisticDescription> statistics() {
  std::vector<StatisticDescription> list;
  for (const StatisticInfo& statistic : all_statistics()) {
    list.push_back({std::string(statistic.name), std::string(statistic.unit), std::string(statistic.doc),
                    static_cast<WorseWay>(statistic.worse)});
  }
  return list;
}

std::vector<std::pair<std::string, std::uint64_t>> memory_of(const MemoryUse& use) {
  const auto bytes = [](Size size) { return static_cast<std::uint64_t>(size); };
  return {{"weights", bytes(use.weights)},         {"quantized weights", bytes(use.quantized_weights)},
          {"gradients", bytes(use.gradients)},     {"optimizer", bytes(use.optimizer)},
          {"activations", bytes(use.activations)}, {"scratch", bytes(use.scratch)}};
}

Size tokens_per_step(const Config& config) {
  return config.train.batch * config.train.accumulation * config.train.context;
}

RunDescription describe(const Trainer& trainer, const fs::path& directory, const std::string& environment_json) {
  const Config& config = trainer.config();
  RunDescription run;
  run.id = run_id(directory);
  run.name = fs::absolute(directory).lexically_normal().filename().string();
  run.model = model_name(config);
  run.recipe = config.precision.recipe;
  run.config = config_texts(config);
  run.group = group_of(config);
  run.seed = config.train.seed;
  run.directory = fs::absolute(directory).lexically_normal().string();
  run.config_toml = to_toml(config);
  run.environment_json = environment_json;
  run.steps = static_cast<std::uint64_t>(config.train.steps);
  run.tokens_per_step = static_cast<std::uint64_t>(tokens_per_step(config));
  run.unit = unit_of(config.data.kind);
  run.sites = sites_of(trainer);
  run.statistics = statistics();
  run.memory = memory_of(trainer.memory());
  for (const auto& [format, share] : trainer.format_shares()) run.shares.emplace_back(format, share);
  return run;
}

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string key_of(const Alert& alert) {
  return fmt::format("{}|{}|{}", info(alert.rule).name, alert.site, alert.step);
}

}  // namespace

fs::path store_of(const Config& config, const fs::path& directory) {
  if (config.run.store == "none") return {};
  if (!config.run.store.empty()) return config.run.store;
  return fs::absolute(directory).lexically_normal().parent_path() / store_file_name;
}

std::optional<std::string> parse_run_id(std::string_view text) {
  const std::string_view id = text.substr(0, text.find('\n'));
  const bool good = id.size() == 16 && id.find_first_not_of("0123456789abcdef") == std::string_view::npos;
  return good ? std::optional(std::string(id)) : std::nullopt;
}

std::string run_id(const fs::path& directory) {
  constexpr std::uint64_t longest_file = 4096;
  const fs::path path = directory / "run_id";
  if (fs::exists(path)) {
    if (const auto known = parse_run_id(read_file(path, longest_file))) return *known;
  }
  std::string id = new_id();
  write_file_atomically(path, id + "\n");
  return id;
}

RunRecord::RunRecord(const Trainer& trainer, const fs::path& directory, const std::string& environment_json,
                     std::function<void(const std::string&)> warning)
    : trainer_(trainer) {
  const fs::path store = store_of(trainer.config(), directory);
  if (store.empty()) return;
  recorder_ = std::make_unique<RunRecorder>(store, describe(trainer, directory, environment_json),
                                            static_cast<std::uint64_t>(trainer.steps_done()), std::move(warning));
  for (const auto& entry : trainer.book().entries()) changes_seen_.push_back(entry->changes.size());
  narrow_share_ = quaver::low_precision_share(trainer.format_shares());
}

void RunRecord::step(const StepReport& report, const StepExtras& extras) {
  if (recorder_ == nullptr) return;
  std::vector<MetricValue> values;
  const auto add = [&](std::string_view name, double value) { values.push_back({name, value}); };
  const auto add_known = [&](std::string_view name, double value) {
    if (!std::isnan(value)) add(name, value);
  };
  const auto add_spent = [&](std::string_view name, double seconds) {
    if (seconds > 0) add(name, seconds);
  };
  add("time", unix_seconds());
  add("loss", report.loss);
  if (extras.validation_loss) add("validation_loss", *extras.validation_loss);
  if (report.validation_accuracy) add("validation_accuracy", *report.validation_accuracy);
  add("learning_rate", report.learning_rate);
  add("gradient_norm", report.gradient_norm);
  if (report.loss_scale != 1) add("loss_scale", report.loss_scale);
  add("seconds", report.seconds);
  add("tokens_per_second", static_cast<double>(report.tokens) / report.seconds);
  add("saturated", static_cast<double>(report.saturated));
  add("underflowed", static_cast<double>(report.underflowed));
  add("overflows", static_cast<double>(report.overflows));
  if (report.skipped) add("skipped", 1);
  add("update_ratio", report.update_ratio);
  add("unmoved_percent", report.unmoved_percent);
  add("max_logit", report.max_logit);
  add("phase.data", report.data_seconds);
  add("phase.forward_backward", report.micro_steps_seconds);
  add("phase.optimizer", report.optimizer_seconds);
  if (report.communication) {
    add("communication_seconds", report.communication->most);
    add("communication_least_seconds", report.communication->least);
    add("slowest_rank", report.communication->slowest_rank);
  }
  add_spent("phase.evaluation", extras.evaluation_seconds);
  add_spent("phase.shadow", extras.shadow_seconds);
  add_spent("phase.statistics", extras.statistics_seconds);
  if (report.sampled) {
    add("narrow_share", narrow_share_);
    add("statistics_seconds", extras.statistics_seconds);
    add_known("gradient_snr", report.gradient_snr);
  }
  if (extras.shadow) {
    add_known("shadow_cosine", extras.shadow->cosine);
    add_known("shadow_error", extras.shadow->error);
  }
  if (const auto reading = meter_.read()) {
    if (reading->watts) add("power_watts", *reading->watts);
    if (reading->sm_mhz) add("sm_clock_mhz", *reading->sm_mhz);
    if (reading->celsius) add("temperature_c", *reading->celsius);
    if (reading->memory_used) add("memory_used_bytes", static_cast<double>(*reading->memory_used));
  }
  recorder_->metrics(static_cast<std::uint64_t>(report.step), values);
}

void RunRecord::ranks(Communicator& ranks, const std::vector<MemoryUse>& memory) {
  auto list = nlohmann::ordered_json::array();
  for (int rank = 0; rank < ranks.size(); ++rank) {
    nlohmann::ordered_json sizes;
    for (const auto& [category, bytes] : memory_of(memory[static_cast<std::size_t>(rank)])) sizes[category] = bytes;
    list.push_back({{"name", ranks.name_of(rank)}, {"memory", std::move(sizes)}});
  }
  document("ranks", nlohmann::ordered_json{{"ranks", std::move(list)}}.dump());
}

void RunRecord::checkpoint_time(Size step, double seconds) {
  const MetricValue value{"phase.checkpoint", seconds};
  if (recorder_ != nullptr) recorder_->metrics(static_cast<std::uint64_t>(step), {&value, 1});
}

void RunRecord::numerics(const NumericsSample& sample) {
  if (recorder_ == nullptr) return;
  std::vector<float> values;
  values.reserve(sample.sites.size() * statistic_count);
  for (const SiteSample& site : sample.sites) {
    values.insert(values.end(), site.values.begin(), site.values.end());
  }
  recorder_->numerics(sample.step, values, sample.binades);
}

void RunRecord::changes(const ScaleBook& book) {
  if (recorder_ == nullptr) return;
  bool formats_changed = false;
  for (std::size_t i = 0; i < changes_seen_.size(); ++i) {
    const auto& entry = book.entries()[i];
    std::size_t& seen = changes_seen_[i];
    for (; seen < entry->changes.size(); ++seen) {
      const ScaleChange& change = entry->changes[seen];
      recorder_->scale_change({.step = change.step,
                               .site = entry->site.name,
                               .reason = change.reason,
                               .scale_before = change.scale_before,
                               .scale_after = change.scale_after,
                               .format_before = std::string(info(change.spec_before.rows.format).name),
                               .format_after = std::string(info(change.spec_after.rows.format).name)});
      if (change.spec_before == change.spec_after) continue;
      formats_changed = true;
      recorder_->site_state(change.step, entry->site.name,
                            state_of(change.spec_after, trainer_.plan().at(entry->site.name).recipe, change.reason));
    }
  }
  if (formats_changed) narrow_share_ = quaver::low_precision_share(trainer_.format_shares());
}

void RunRecord::alert(const Alert& alert, const std::optional<std::string>& act) {
  if (recorder_ == nullptr) return;
  if (act) acts_[key_of(alert)] = *act;
  const auto done = acts_.find(key_of(alert));
  recorder_->alert({.step = alert.step,
                    .last_step = alert.last_step,
                    .count = alert.count,
                    .rule = std::string(info(alert.rule).name),
                    .severity = std::string(name_of(alert.severity)),
                    .site = alert.site.empty() ? std::nullopt : std::optional(alert.site),
                    .value = alert.value,
                    .threshold = alert.threshold,
                    .text = alert.text,
                    .meaning = std::string(alert.meaning()),
                    .remedy = remedy_of(alert, trainer_.book()),
                    .act = done != acts_.end() ? std::optional(done->second) : std::nullopt});
}

void RunRecord::event(Size step, const std::string& kind, const std::string& text) {
  if (recorder_ != nullptr) recorder_->event(static_cast<std::uint64_t>(step), kind, text);
}

void RunRecord::sample(Size step, const std::string& text) {
  if (recorder_ != nullptr) recorder_->sample(static_cast<std::uint64_t>(step), text);
}

void RunRecord::document(const std::string& kind, const std::string& json) {
  if (recorder_ != nullptr) recorder_->document(kind, json);
}

void RunRecord::status(RunStatus status) {
  if (recorder_ != nullptr) recorder_->status(status);
}

void RunRecord::flush() {
  if (recorder_ != nullptr) recorder_->flush();
}

void RunRecord::rewind(Size last_step, const ScaleBook& book) {
  if (recorder_ == nullptr) return;
  recorder_->rewind(static_cast<std::uint64_t>(last_step));
  for (std::size_t i = 0; i < changes_seen_.size(); ++i) changes_seen_[i] = book.entries()[i]->changes.size();
  narrow_share_ = quaver::low_precision_share(trainer_.format_shares());
}

}  // namespace quaver
