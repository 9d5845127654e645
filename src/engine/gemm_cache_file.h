// The file that keeps the fastest algorithm of each GEMM for the next run. It is a hint from outside and never trusted.
// Independent of cuBLASLt, whose algorithms are opaque bytes here, so that it can be tested without a GPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

namespace quaver {

inline constexpr std::size_t gemm_workspace_limit = std::size_t{64} << 20U;

struct GemmChoice {
  std::array<std::uint8_t, 64> algorithm{};  // as cuBLASLt describes it
  std::size_t workspace = 0;                 // bytes, gemm_workspace_limit at most
  float microseconds = 0;
  bool operator==(const GemmChoice&) const = default;
};
using GemmChoices = std::map<std::string, GemmChoice>;  // by the GEMM's key

// Parses the text. Lines that are damaged or of another program are skipped.
GemmChoices parse_gemm_choices(std::string_view text);
std::string render_gemm_choices(const GemmChoices& choices);

// None where the file is missing, no regular file (a pipe is not waited for) or larger than any that is written.
GemmChoices read_gemm_choices(const std::filesystem::path& path);
// Atomic: a reader sees the old file or the new one. False where it cannot be written.
bool write_gemm_choices(const std::filesystem::path& path, const GemmChoices& choices);

}  // namespace quaver
