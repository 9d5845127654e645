// The map of sensitivities that `quaver localize` wrote and precision.localization names. It comes from outside and
// goes on to the dashboard, so it is checked in between.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace quaver {

// The map as it stands in the file; Error where that cannot be read or is no such map.
std::string read_localization_map(const std::filesystem::path& path);

// Error, with `source` in it, unless the text is JSON that says of every site what the dashboard shows.
void check_localization_map(std::string_view text, std::string_view source);

}  // namespace quaver
