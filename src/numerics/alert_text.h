// The one line an alert says on the terminal. Internal to this module.
#pragma once

#include <string>
#include <string_view>

#include "numerics/alerts.h"

namespace quaver {

// `detail` names what the numbers alone do not tell, such as the format; a restored alert has none.
std::string alert_text(AlertRule rule, const std::string& site, double value, double threshold,
                       std::string_view detail);

}  // namespace quaver
