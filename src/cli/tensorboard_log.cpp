#include "cli/tensorboard_log.h"

#include <chrono>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>
#include <utility>

#include "quaver/error.h"

namespace quaver {

namespace {

double now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

TensorboardLog::TensorboardLog(const std::filesystem::path& folder, Warning warning)
    : path_(folder /
            fmt::format("events.out.tfevents.{:010d}.quaver.{}.0", static_cast<std::int64_t>(now()), getpid())),
      warning_(std::move(warning)) {
  std::error_code ignored;
  std::filesystem::create_directories(folder, ignored);
  file_.open(path_, std::ios::binary | std::ios::app);
  if (!file_) throw Error(fmt::format("--tensorboard: cannot write {}", path_.string()), "name a folder of your own");
  events_.emplace(
      [this](std::span<const std::byte> bytes) {
        file_.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
      },
      now());
  file_.flush();
}

void TensorboardLog::send(std::string_view line) {
  if (!events_) return;
  const nlohmann::json metrics = nlohmann::json::parse(line);
  std::vector<TensorboardScalar> scalars;
  for (const auto& [name, value] : metrics.items()) {
    if (name != "step" && value.is_number()) scalars.push_back({name, value.get<float>()});
  }
  events_->write(now(), metrics.at("step").get<std::uint64_t>(), scalars);
  if (file_.flush()) return;
  events_.reset();
  if (warning_) warning_(fmt::format("{} cannot be written any more; training goes on without it", path_.string()));
}

}  // namespace quaver
