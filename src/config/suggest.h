// "Did you mean …": the names nearest to one that does not exist.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quaver {

// Insertions, deletions, substitutions and swaps of neighbors that turn a into b.
std::size_t edit_distance(std::string_view a, std::string_view b);

// The names as near as any to `typed` and near enough to be a slip; nearest means fewest edits. Dotted names are also
// compared by their last part, so that the right key in the wrong section is found, and by the initials of it (lr).
std::vector<std::string> closest_names(std::string_view typed, std::span<const std::string> names);

// `did you mean "a" or "b"?`, or empty when nothing is near.
std::string did_you_mean(std::string_view typed, std::span<const std::string> names);

}  // namespace quaver
