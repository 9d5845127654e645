// The tables of the store, and the checks a file passes before it is used as one.
#pragma once

#include "store/database.h"

namespace quaver {

inline constexpr int schema_version = 3;  // 2: BLOBs have checksums; 3: annotations

// Makes the tables in an empty file and brings those of an earlier version up to date; refuses (StoreFailure) what is
// not a store or was written by a newer version.
void prepare_store(Database& database);

// The same checks, for readers.
void check_store(Database& database);

}  // namespace quaver
