// Where text comes from: plain files, folders of them, and JSON lines. Files are streamed, so a corpus may be far
// larger than memory; a plain file that is long becomes several documents.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iosfwd>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quaver {

// Does a path match? "*" is any text within one name, "**" any number of folders too, "?" one character. A pattern
// without "/" is held against the last name only.
bool matches_glob(std::string_view pattern, std::string_view path);

struct InputFile {
  std::filesystem::path path;
  std::uint64_t bytes;
};

struct InputSelection {
  std::vector<std::filesystem::path> inputs;  // files, or folders to search; hidden names in folders are passed over
  std::vector<std::string> include;           // globs relative to the folder; empty: everything
  std::vector<std::string> exclude;           // globs that win over include
  std::filesystem::path never;                // a folder that is never searched: where the output goes
};

struct Inputs {
  std::vector<InputFile> files;    // in a fixed order: inputs as given, a folder's files sorted by path
  std::vector<std::string> notes;  // what folders hold that is no file and was passed over: links, pipes, devices
};

// Error for an input that is not there and for a folder in which nothing matches.
Inputs list_inputs(const InputSelection& selection);

struct Document {
  std::string_view text;
  std::string_view source;   // the file it is from
  std::uint64_t line;        // 1 for the first; of the document's first character in plain text
  std::uint64_t end_offset;  // how much of the file has been read with it
};
using DocumentVisitor = std::function<void(const Document&)>;

enum class MalformedLine : std::uint8_t { stop, skip };  // stop with an Error that names the line, or pass over it

struct TextReading {
  std::string separator;              // between documents of a plain file; empty: none
  std::uint64_t piece_bytes = 65536;  // longer plain text is cut near here, at a paragraph, line or word
  std::string text_field = "text";    // of a JSON line
  MalformedLine malformed = MalformedLine::stop;
};

// A UTF-8 byte order mark at the start is dropped; nothing else is changed.
void read_plain_text(std::istream& in, std::string_view source, const TextReading& reading,
                     const DocumentVisitor& visit);

struct TextLine {
  std::string_view text;     // without its end
  std::uint64_t number;      // from 1
  std::uint64_t end_offset;  // how much of the file has been read with it
};

// Every line that is not blank. Error, naming the line, for one longer than `longest` bytes.
void read_lines(std::istream& in, std::string_view source, std::size_t longest,
                const std::function<void(const TextLine&)>& visit);

struct SkippedLines {
  std::uint64_t count = 0;
  std::uint64_t first = 0;  // the number of the first
};

// One object per line; blank lines are skipped. Returns the malformed lines that were skipped.
SkippedLines read_json_lines(std::istream& in, std::string_view source, const TextReading& reading,
                             const DocumentVisitor& visit);

// By its name: .jsonl and .ndjson are.
bool is_json_lines(const std::filesystem::path& path);

// Either of the above, by the file's name. Error, after the last document, for a
// file that changed meanwhile.
SkippedLines read_documents(const std::filesystem::path& path, const TextReading& reading,
                            const DocumentVisitor& visit);

}  // namespace quaver
