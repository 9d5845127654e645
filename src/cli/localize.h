// A localization as the verb shows it: on the terminal and as an HTML report.
#pragma once

#include <string>

#include "study/localize.h"

namespace quaver {

std::string localization_table(const Localization& localization);
std::string localization_report(const Localization& localization, const std::string& plan);

// "0.25%" or "0.25" → 0.0025. Throws Error.
double parse_budget(const std::string& text);

}  // namespace quaver
