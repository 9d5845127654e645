// Sizes that come from outside.
#pragma once

#include <string>

#include "quaver/quant_spec.h"

namespace quaver {

// rows · cols. Throws Error where one is not positive, the product overflows, or `given` is another number.
Size checked_count(Size rows, Size cols, std::size_t given, const std::string& what);

}  // namespace quaver
