#include "data/text_tokens.h"

#include <fmt/format.h>

#include "data/documents.h"
#include "io/utf8.h"
#include "quaver/error.h"

namespace quaver {
namespace {

constexpr std::uint64_t longest_document = 64 << 20;  // that is not cut in two

bool has_no_text(std::string_view text) { return text.find_first_not_of(" \t\r\n\v\f") == std::string_view::npos; }

bool is_text(std::string_view text) {
  return text.find('\0') == std::string_view::npos && find_invalid_utf8(text) == std::string_view::npos;
}

}  // namespace

TextTokens read_text_tokens(const std::filesystem::path& file_or_folder, const Tokenizer& tokenizer) {
  TextTokens tokens;
  Inputs inputs = list_inputs({.inputs = {file_or_folder}, .include = {}, .exclude = {}, .never = {}});
  tokens.notes = std::move(inputs.notes);
  std::uint64_t left_out = 0;
  std::string example;
  const auto take = [&](const Document& document) {
    if (has_no_text(document.text)) return;
    if (!is_text(document.text)) {
      if (left_out++ == 0) example = fmt::format("{}:{}", document.source, document.line);
      return;
    }
    TokenizedDocument& taken = tokens.documents.emplace_back();
    taken.name = document.source;
    if (document.line > 1 || is_json_lines(document.source)) taken.name += fmt::format(":{}", document.line);
    taken.ids.assign(tokenizer.prefix().begin(), tokenizer.prefix().end());
    if (taken.ids.empty()) taken.ids.push_back(tokenizer.end_of_text());
    tokenizer.encode(document.text, taken.ids);
  };
  TextReading reading;
  reading.piece_bytes = longest_document;
  for (const InputFile& file : inputs.files) read_documents(file.path, reading, take);
  if (left_out > 0) {
    tokens.notes.push_back(fmt::format("left out: {} that {} not UTF-8 text ({})",
                                       left_out == 1 ? "1 document" : fmt::format("{} documents", left_out),
                                       left_out == 1 ? "is" : "are", example));
  }
  if (tokens.documents.empty())
    throw Error(file_or_folder.string() + ": no text", "name a file or folder of UTF-8 text");
  return tokens;
}

}  // namespace quaver
