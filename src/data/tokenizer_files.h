// A tokenizer as the files that Hugging Face's AutoTokenizer loads: tokenizer.json, tokenizer_config.json and
// special_tokens_map.json.
#pragma once

#include <cstdint>
#include <filesystem>

#include "data/tokenizer.h"

namespace quaver {

// Writes them into the folder, which is made if need be. A tokenizer.json that was read is written byte for byte; bytes
// become a byte-level BPE without merges. `longest` is the model's context, in tokens.
void write_tokenizer_files(const Tokenizer& tokenizer, std::int64_t longest, const std::filesystem::path& folder);

// Whether every id stands for the same bytes in both.
bool same_vocabulary(const Tokenizer& a, const Tokenizer& b);

}  // namespace quaver
