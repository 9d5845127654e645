// The schema as documentation: docs/config.md and the listing of --help.
#pragma once

#include <string>
#include <string_view>

namespace quaver {

// docs/config.md, whole. Regenerate the file with `quaver inspect config > docs/config.md`.
std::string config_reference();

// Keys with type, default and meaning, for a terminal; of one section, or of all when it is empty. Throws Error for an
// unknown section.
std::string config_help(std::string_view section = {});

}  // namespace quaver
