// Scales of two runs side by side.
#pragma once

#include <string>
#include <vector>

#include "precision/scale_book.h"

namespace quaver {

// A line a site: both scales, how many binades the second is above the first, and the formats where they differ.
std::string scale_table(const std::vector<SiteDifference>& differences);

}  // namespace quaver
