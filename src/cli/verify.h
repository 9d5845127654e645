// Verifying prepared data, for `quaver data --verify` and `quaver inspect`.
#pragma once

#include <filesystem>

#include "cli/verbs.h"

namespace quaver {

// Reads every shard of a data set, or one shard, to the end and prints one line for each. Error at the end where one
// is damaged.
void verify_shards(const std::filesystem::path& path, Output output);

}  // namespace quaver
