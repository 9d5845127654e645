#include "engine/gemm_cache_file.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <fcntl.h>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

namespace quaver {
namespace {

constexpr std::string_view file_header = "# quaver: algorithms of products. Safe to delete.";
constexpr std::size_t longest_line = 1024;
constexpr std::size_t most_lines = 20000;
constexpr std::uint32_t most_tenths = 1U << 22U;  // of a microsecond; up to here a float gives back what it was made of
constexpr std::size_t largest_file = longest_line * most_lines;

template <class T>
bool parse(std::string_view text, T& value, int base = 10) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  return error == std::errc() && end == text.data() + text.size() && !text.empty();
}

bool parse_algorithm(std::string_view text, GemmChoice& choice) {
  if (text.size() != 2 * choice.algorithm.size()) return false;
  for (std::size_t i = 0; i < choice.algorithm.size(); ++i) {
    if (!parse(text.substr(2 * i, 2), choice.algorithm[i], 16)) return false;
  }
  return true;
}

std::string hex(const GemmChoice& choice) {
  constexpr char digits[] = "0123456789abcdef";
  std::string text;
  for (const unsigned byte : choice.algorithm) {
    text += digits[byte >> 4U];
    text += digits[byte & 15U];
  }
  return text;
}

// key, algorithm, workspace, tenths of a microsecond, between tabs
bool parse_line(std::string_view line, std::string& key, GemmChoice& choice) {
  std::array<std::string_view, 4> fields;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const std::size_t tab = line.find('\t');
    if ((tab == std::string_view::npos) != (i + 1 == fields.size())) return false;
    fields[i] = line.substr(0, tab);
    if (tab != std::string_view::npos) line.remove_prefix(tab + 1);
  }
  std::uint32_t tenths = 0;
  if (fields[0].empty() || !parse_algorithm(fields[1], choice) || !parse(fields[2], choice.workspace) ||
      choice.workspace > gemm_workspace_limit || !parse(fields[3], tenths) || tenths > most_tenths) {
    return false;
  }
  key = fields[0];
  choice.microseconds = static_cast<float>(tenths) / 10;
  return true;
}

// The first bytes of a regular file, and nothing of anything else. This folder does not depend on io, whose read_file
// is the same with Errors.
std::string read_start(const std::filesystem::path& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return {};
  struct stat status {};
  std::string text;
  if (::fstat(descriptor, &status) == 0 && S_ISREG(status.st_mode)) {
    text.resize(std::min<std::size_t>(largest_file, static_cast<std::size_t>(status.st_size)));
  }
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::read(descriptor, text.data() + done, text.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    done += static_cast<std::size_t>(got);
  }
  ::close(descriptor);
  text.resize(done);
  return text;
}

}  // namespace

GemmChoices parse_gemm_choices(std::string_view text) {
  GemmChoices choices;
  for (std::size_t count = 0; count < most_lines && !text.empty(); ++count) {
    const std::size_t end = text.find('\n');
    // A line longer than any that is written, or one cut off: nothing after it is read.
    if (end == std::string_view::npos || end >= longest_line) break;
    std::string key;
    GemmChoice choice;
    if (parse_line(text.substr(0, end), key, choice)) choices[key] = choice;
    text.remove_prefix(end + 1);
  }
  return choices;
}

std::string render_gemm_choices(const GemmChoices& choices) {
  std::string text(file_header);
  text += '\n';
  for (const auto& [key, choice] : choices) {
    text += key + '\t' + hex(choice) + '\t' + std::to_string(choice.workspace) + '\t' +
            std::to_string(std::min<long long>(std::llround(choice.microseconds * 10), most_tenths)) + '\n';
  }
  return text;
}

GemmChoices read_gemm_choices(const std::filesystem::path& path) { return parse_gemm_choices(read_start(path)); }

bool write_gemm_choices(const std::filesystem::path& path, const GemmChoices& choices) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  std::filesystem::path temporary = path;
  temporary += "." + std::to_string(getpid());
  {
    std::ofstream out(temporary, std::ios::trunc);
    out << render_gemm_choices(choices);
    out.close();
    if (!out) {
      std::filesystem::remove(temporary, error);
      return false;
    }
  }
  std::filesystem::rename(temporary, path, error);
  if (!error) return true;
  std::error_code ignored;
  std::filesystem::remove(temporary, ignored);
  return false;
}

}  // namespace quaver
