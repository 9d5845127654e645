// Errors: what happened (with the place it happened in), and what the user can do about it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace quaver {

// throw Error("blocks.0.attn.out: 1000 columns are not a multiple of 16", "pad the width to 1008");
// The remedy is a full thought of its own; it may be empty only where nothing can be done.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& what_happened, std::string remedy = "")
      : std::runtime_error(what_happened), remedy_(std::move(remedy)) {}

  const std::string& remedy() const noexcept { return remedy_; }

 private:
  std::string remedy_;
};

}  // namespace quaver
