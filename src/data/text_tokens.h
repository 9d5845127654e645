// Text for a model that is there already: files and folders as token ids in memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace quaver {

struct TextTokens {
  std::vector<std::int32_t> ids;   // every document follows an end-of-text, as it does in training
  std::vector<std::string> notes;  // what was left out
};

// Plain text and JSON lines, as `quaver data` reads them but for long files, which stay whole. Error where nothing is
// left.
TextTokens read_text_tokens(const std::filesystem::path& file_or_folder, const Tokenizer& tokenizer);

}  // namespace quaver
