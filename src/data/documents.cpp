#include "data/documents.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <system_error>

#include "quaver/error.h"

namespace quaver {
namespace {

constexpr std::size_t least_read = 1 << 18;
constexpr std::size_t max_line_bytes = 1 << 30;
constexpr std::uint64_t min_piece_bytes = 1024;
constexpr std::uint64_t max_piece_bytes = 1 << 30;
constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";

// A stream as a window that slides over it.
class Window {
 public:
  Window(std::istream& in, std::string_view source) : in_(in), source_(source) {}

  // What has been read and not consumed: at least `wanted` bytes, or all that is left.
  std::string_view peek(std::size_t wanted) {
    while (buffer_.size() - start_ < wanted && !at_end_) read_block(wanted);
    return std::string_view(buffer_).substr(start_);
  }

  void consume(std::size_t bytes) {
    start_ += bytes;
    consumed_ += bytes;
  }
  std::uint64_t consumed() const { return consumed_; }
  bool at_end() const { return at_end_; }  // nothing follows what peek() gave

 private:
  void read_block(std::size_t wanted) {
    buffer_.erase(0, start_);
    start_ = 0;
    const std::size_t kept = buffer_.size();
    buffer_.resize(kept + std::max(least_read, wanted - kept));
    in_.read(buffer_.data() + kept, static_cast<std::streamsize>(buffer_.size() - kept));
    if (in_.bad()) throw Error(fmt::format("cannot read {}", source_), "check the disk");
    buffer_.resize(kept + static_cast<std::size_t>(in_.gcount()));
    at_end_ = in_.eof() || in_.gcount() == 0;
  }

  std::istream& in_;
  std::string source_;
  std::string buffer_;
  std::size_t start_ = 0;
  std::uint64_t consumed_ = 0;
  bool at_end_ = false;
};

// What tells that a file was written to or cut off: its text may then be a part, or of two versions.
struct FileState {
  std::uint64_t bytes;
  std::filesystem::file_time_type written;
  bool operator==(const FileState&) const = default;
};

FileState state_of(const std::filesystem::path& path) {
  std::error_code failure;
  const FileState state{std::filesystem::file_size(path, failure), std::filesystem::last_write_time(path, failure)};
  if (failure) throw Error(fmt::format("cannot open {}", path.string()), "check the path and the permissions");
  return state;
}

// Where to cut text that is too long: after the last paragraph, line or word of its second half, or else between
// characters.
std::size_t cut_point(std::string_view text) {
  const std::size_t half = text.size() / 2;
  for (const std::string_view mark : {"\n\n", "\n", " "}) {
    const std::size_t found = text.rfind(mark);
    if (found != std::string_view::npos && found >= half) return found + mark.size();
  }
  std::size_t cut = text.size() - 1;  // the last byte may begin a character that goes on
  const auto continues = [&](std::size_t i) { return (static_cast<unsigned char>(text[i]) & 0xC0) == 0x80; };
  while (cut > half && text.size() - cut < 4 && continues(cut)) --cut;
  return cut;
}

struct Cut {
  std::size_t length;   // of the document
  std::size_t consume;  // with the separator
};

Cut next_document(Window& window, const TextReading& reading) {
  const std::string_view ahead = window.peek(reading.piece_bytes + reading.separator.size());
  if (!reading.separator.empty()) {
    const std::size_t found = ahead.substr(0, reading.piece_bytes + reading.separator.size()).find(reading.separator);
    if (found != std::string_view::npos) return {found, found + reading.separator.size()};
  }
  if (ahead.size() <= reading.piece_bytes) return {ahead.size(), ahead.size()};
  const std::size_t cut = cut_point(ahead.substr(0, reading.piece_bytes));
  return {cut, cut};
}

void check_piece_bytes(const TextReading& reading) {
  if (reading.piece_bytes < min_piece_bytes || reading.piece_bytes > max_piece_bytes) {
    throw Error(fmt::format("pieces of {} bytes", reading.piece_bytes),
                fmt::format("choose from {} to {}", min_piece_bytes, max_piece_bytes));
  }
}

std::string names_of_fields(const nlohmann::json& object) {
  std::string names;
  for (const auto& [key, value] : object.items()) {
    if (names.size() > 200) return names + ", …";
    names += fmt::format("{}{}", names.empty() ? "" : ", ", key);
  }
  return names.empty() ? "none" : names;
}

// The text field of one JSON line; Error without the place, which the caller knows.
std::string text_of_line(std::string_view line, const std::string& field) {
  nlohmann::json object;
  try {
    object = nlohmann::json::parse(line);
  } catch (const nlohmann::json::exception& error) {
    throw Error(fmt::format("not JSON: {}", error.what()), "mend the line, or pass over such lines (--skip-bad-lines)");
  }
  if (!object.is_object())
    throw Error("not a JSON object", "write one object per line, or pass over such lines (--skip-bad-lines)");
  const auto found = object.find(field);
  if (found == object.end()) {
    throw Error(fmt::format("no field \"{}\"; it has {}", field, names_of_fields(object)),
                "name the field that holds the text (--text-field), or pass over such lines (--skip-bad-lines)");
  }
  if (!found->is_string()) {
    throw Error(fmt::format("field \"{}\" is not a string", field),
                "name a field of text (--text-field), or pass over such lines (--skip-bad-lines)");
  }
  return found->get<std::string>();
}

// The next line without its end, or false at the end of the file.
bool next_line(Window& window, std::string_view place, std::size_t longest, std::string& line) {
  std::size_t wanted = least_read;
  std::string_view ahead = window.peek(1);
  std::size_t end = ahead.find('\n');
  while (end == std::string_view::npos && !window.at_end()) {
    if (ahead.size() > longest) break;
    const std::size_t searched = ahead.size();
    ahead = window.peek(wanted);
    end = ahead.find('\n', searched);
    wanted *= 2;
  }
  if (ahead.empty()) return false;
  if (std::min(end, ahead.size()) > longest) {
    throw Error(fmt::format("{}: a line longer than {} bytes", place, longest), "check that the file is JSON lines");
  }
  line.assign(ahead.substr(0, end));
  window.consume(end == std::string_view::npos ? ahead.size() : end + 1);
  return true;
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

}  // namespace

void read_plain_text(std::istream& in, std::string_view source, const TextReading& reading,
                     const DocumentVisitor& visit) {
  check_piece_bytes(reading);
  Window window(in, source);
  if (window.peek(byte_order_mark.size()).starts_with(byte_order_mark)) window.consume(byte_order_mark.size());
  std::uint64_t line = 1;
  bool first = true;
  while (first || !window.peek(1).empty()) {  // an empty file is an empty document, to be counted as such
    first = false;
    const Cut cut = next_document(window, reading);
    const std::string_view taken = window.peek(cut.consume).substr(0, cut.consume);
    visit({taken.substr(0, cut.length), source, line, window.consumed() + cut.consume});
    line += static_cast<std::uint64_t>(std::count(taken.begin(), taken.end(), '\n'));
    window.consume(cut.consume);
  }
}

void read_lines(std::istream& in, std::string_view source, std::size_t longest,
                const std::function<void(const TextLine&)>& visit) {
  Window window(in, source);
  if (window.peek(byte_order_mark.size()).starts_with(byte_order_mark)) window.consume(byte_order_mark.size());
  std::string line;
  for (std::uint64_t number = 1; next_line(window, fmt::format("{}:{}", source, number), longest, line); ++number) {
    if (!is_blank(line)) visit({line, number, window.consumed()});
  }
}

SkippedLines read_json_lines(std::istream& in, std::string_view source, const TextReading& reading,
                             const DocumentVisitor& visit) {
  SkippedLines skipped;
  read_lines(in, source, max_line_bytes, [&](const TextLine& line) {
    std::string text;
    try {
      text = text_of_line(line.text, reading.text_field);
    } catch (const Error& error) {
      if (reading.malformed == MalformedLine::stop) {
        throw Error(fmt::format("{}:{}: {}", source, line.number, error.what()), error.remedy());
      }
      if (skipped.count++ == 0) skipped.first = line.number;
      return;
    }
    visit({text, source, line.number, line.end_offset});
  });
  return skipped;
}

bool is_json_lines(const std::filesystem::path& path) {
  return path.extension() == ".jsonl" || path.extension() == ".ndjson";
}

SkippedLines read_documents(const std::filesystem::path& path, const TextReading& reading,
                            const DocumentVisitor& visit) {
  std::error_code failure;
  if (std::filesystem::exists(path, failure) && !std::filesystem::is_regular_file(path, failure)) {
    throw Error(fmt::format("{} is not a regular file any more", path.string()), "leave the inputs alone meanwhile");
  }
  const FileState before = state_of(path);
  std::ifstream in(path, std::ios::binary);
  if (!in) throw Error(fmt::format("cannot open {}", path.string()), "check the path and the permissions");
  const std::string source = path.string();
  SkippedLines skipped;
  if (is_json_lines(path)) {
    skipped = read_json_lines(in, source, reading, visit);
  } else {
    read_plain_text(in, source, reading, visit);
  }
  if (const FileState after = state_of(path); after != before) {
    throw Error(
        fmt::format("{} changed while it was being read: it had {} bytes, now {}", source, before.bytes, after.bytes),
        "prepare the data set again, with text that nothing writes to");
  }
  return skipped;
}

}  // namespace quaver
