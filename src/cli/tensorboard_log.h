// TensorBoard's event file of a run, written while it trains: the numbers of every step's line of metrics.
#pragma once

#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "store/tensorboard.h"

namespace quaver {

class TensorboardLog {
 public:
  using Warning = std::function<void(const std::string&)>;

  // A new file in the folder, which is made if need be. Throws Error where that fails.
  TensorboardLog(const std::filesystem::path& folder, Warning warning);

  // A step's line of metrics.jsonl. A disk that takes no more gives one warning; training goes on.
  void send(std::string_view line);

 private:
  std::filesystem::path path_;
  Warning warning_;
  std::ofstream file_;
  std::optional<TensorboardEvents> events_;  // none once writing has failed
};

}  // namespace quaver
