// Text for a model that is there already: files and folders as token ids in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace quaver {

struct TokenizedDocument {
  std::string name;  // its file; of a JSON line with the line's number
  std::vector<std::int32_t>
      ids;  // behind what a document follows in training: the tokenizer's prefix or an end-of-text
};

struct TextTokens {
  std::vector<TokenizedDocument> documents;
  std::vector<std::string> notes;  // what was left out
};

// Plain text, a document per file, and JSON lines, one per line. Error where nothing is left.
TextTokens read_text_tokens(const std::filesystem::path& file_or_folder, const Tokenizer& tokenizer);

}  // namespace quaver
