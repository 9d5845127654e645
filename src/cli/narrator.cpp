#include "cli/narrator.h"

#include <fmt/format.h>

#include "train/run_folder.h"

namespace quaver {

namespace {

ProgressOptions options_for(const Config& config, Output output) {
  ProgressOptions options = progress_options(stdout, output == Output::json ? OutputStyle::json : OutputStyle::human);
  options.log_every = config.train.log_every;
  return options;
}

std::string trained_share(double parameters, double frozen) {
  const double trained = parameters - frozen;
  return fmt::format(", {} of them frozen · {} trained ({:.2g}%)", format_count(frozen), format_count(trained),
                     100 * trained / parameters);
}

}  // namespace

Narrator::Narrator(const Config& config, Output output)
    : output_(output), unit_(unit_of(config.data.kind)), progress_(options_for(config, output)) {
  line_.steps = config.train.steps;
  line_.unit = has_images(config.data.kind) ? "img" : "tok";
}

RunObserver Narrator::observer() {
  RunObserver observer;
  observer.started = [this](const Trainer& trainer, Size first) { introduce(trainer, first); };
  observer.stepped = [this](const StepReport& report, std::optional<double> loss) { step(report, loss); };
  observer.message = [this](const std::string& text) { progress_.message(text); };
  observer.warning = [this](const std::string& text) {
    progress_.warning(text);
    if (trainer_ != nullptr)
      line_.low_precision_percent =
          100 * low_precision_share(trainer_->format_shares());  // a site may be in high precision now
  };
  observer.critical = [this](const std::string& text) { progress_.critical(text); };
  return observer;
}

void Narrator::introduce(const Trainer& trainer, Size first_step) {
  const Config& config = trainer.config();
  trainer_ = &trainer;
  flops_per_token_ = trainer.model().flops_per_token(config.train.context);
  line_.low_precision_percent = 100 * low_precision_share(trainer.format_shares());
  if (output_ == Output::json) return;
  const MemoryUse memory = trainer.memory();
  const auto parameters = static_cast<double>(trainer.model().parameters().count());
  const auto frozen = static_cast<double>(trainer.model().parameters().frozen_count());
  const int ranks = trainer.model().parameters().place().ranks;
  progress_.message(fmt::format(
      "{} · {} parameters{} · {} · {}{} {} per step · {} of memory", model_name(config), format_count(parameters),
      frozen > 0 ? trained_share(parameters, frozen) : "", config.precision.recipe,
      ranks > 1 ? fmt::format("{} ranks · ", ranks) : "",
      format_count(static_cast<double>(config.train.batch * config.train.accumulation * config.train.context)), unit_,
      format_bytes(static_cast<std::uint64_t>(memory.total()))));
  if (first_step == 0) progress_.message(summary(trainer.plan()));
}

void Narrator::step(const StepReport& report, std::optional<double> validation_loss) {
  line_.step = report.step;
  line_.loss = report.loss;
  line_.validation_loss = validation_loss;
  line_.validation_accuracy = report.validation_accuracy;
  line_.learning_rate = report.learning_rate;
  line_.gradient_norm = report.gradient_norm;
  line_.tokens_per_second = static_cast<double>(report.tokens) / report.seconds;
  line_.tflops = line_.tokens_per_second * flops_per_token_ / 1e12;
  line_.overflows += static_cast<std::int64_t>(report.overflows);
  line_.skipped += report.skipped ? 1 : 0;
  progress_.update(line_);
}

void Narrator::conclude(const RunResult& result) {
  progress_.finish();
  trainer_ = nullptr;
  if (output_ == Output::json) return;
  std::string text = result.directory.string() + ":";
  if (result.final_train_loss) text += fmt::format(" final training loss {:.4f}", *result.final_train_loss);
  if (result.final_validation_loss) {
    text += fmt::format("{} validation loss {:.4f}", result.final_train_loss ? "," : "", *result.final_validation_loss);
  }
  if (result.best_loss) text += fmt::format(" (best possible {:.4f})", *result.best_loss);
  if (result.final_validation_accuracy) {
    text += fmt::format(", validation accuracy {:.2f}%", 100 * *result.final_validation_accuracy);
    if (result.best_accuracy) text += fmt::format(" (best possible {:.2f}%)", 100 * *result.best_accuracy);
  }
  if (result.tokens_per_second > 0) text += fmt::format(", {} {}/s", format_count(result.tokens_per_second), unit_);
  progress_.message(text);
  if (result.end == RunEnd::interrupted) {
    progress_.message(fmt::format("continue with: quaver train --resume {}", result.directory.string()));
  }
}

}  // namespace quaver
