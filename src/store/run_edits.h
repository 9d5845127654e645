// What people change about a recorded run: the name it is shown under, tags, a note, whether it is listed, and its
// deletion. Each change is a short transaction on a connection of its own, so that trainers hardly wait for it.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "quaver/error.h"

namespace quaver {

// In characters; the store takes nothing longer.
inline constexpr std::size_t longest_run_name = 128;
inline constexpr std::size_t longest_run_note = 4000;
inline constexpr std::size_t longest_tag = 64;
inline constexpr std::size_t most_tags = 32;

// Of UTF-8: continuation bytes do not count.
std::size_t characters_in(std::string_view text);

// What is absent stays as it is.
struct RunEdit {
  std::optional<std::string> name = std::nullopt;  // empty: the one it was trained under
  std::optional<std::vector<std::string>> tags = std::nullopt;
  std::optional<std::string> note = std::nullopt;
  std::optional<bool> hidden = std::nullopt;
  std::optional<bool> deleted = std::nullopt;  // its records stay, and so it can be undone
};

// The run is not in a state for this: it is training, or has not been deleted before it is to be removed.
class EditConflict : public Error {
 public:
  using Error::Error;
};

// NoSuchRecord where the store has no such run, Error where the edit is beyond the bounds above.
void edit_run(const std::filesystem::path& store, const std::string& id, const RunEdit& edit);

// Removes every record of a deleted run, for good: many short transactions, the run's own row in the last. Where it
// ends half-way the run is still there, still deleted, and can be removed again. Its folder is not touched.
void remove_run(const std::filesystem::path& store, const std::string& id);

}  // namespace quaver
