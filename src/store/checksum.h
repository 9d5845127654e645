// Checksums beside the BLOBs of a store: CRC-32C, in a column of its own. Rows that schema 1 wrote have none and are
// taken as they are.
#pragma once

#include <string_view>

#include "io/file_io.h"
#include "store/database.h"

namespace quaver {

inline std::int64_t checksum_of(std::span<const std::byte> blob) { return crc32c(blob); }

// What to select for the checksum: a store of schema 1 that is only read has no such column.
inline std::string_view checksum_column(Database& database) {
  return database.pragma("user_version") < 2 ? "NULL" : "checksum";
}

// Whether the BLOB in one column of the row is the one that the checksum in another was made of.
inline bool is_intact(const Statement& row, int blob, int checksum) {
  return row.column_null(checksum) || row.column_int(checksum) == checksum_of(row.column_blob(blob));
}

}  // namespace quaver
