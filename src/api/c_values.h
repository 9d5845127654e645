// Values that cross the C interface, checked on their way in.
#pragma once

#include <span>

#include "api/c_guard.h"

#include "quaver/format.h"
#include "quaver/quant_spec.h"
#include "quaver/statistics.h"

namespace quaver::c {

inline Format format_of(quaver_format format) { return enumerator<Format>(format, QUAVER_FORMATS, "format"); }
inline Role role_of(std::int32_t role) { return enumerator<Role>(role, 3, "role"); }

quaver_statistics c_statistics(const CastStatistics& from);

// The number of values of a [rows × cols] array that a caller says is there.
std::size_t extent(std::int64_t rows, std::int64_t cols);

// Memory that a caller gives.
inline std::span<std::byte> bytes_at(void* memory, std::size_t bytes) {
  return {static_cast<std::byte*>(memory), memory == nullptr ? 0 : bytes};
}

void require_length(std::size_t count, std::size_t expected, const char* name);

}  // namespace quaver::c
