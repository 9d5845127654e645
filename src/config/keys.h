// The rows of schema(): edit keys.cpp to add a key. Everyone else reads the table through schema.h.
#pragma once

#include <vector>

#include "config/schema.h"

namespace quaver {

std::vector<Key> make_keys();

}  // namespace quaver
