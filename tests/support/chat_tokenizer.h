// Bytes, end-of-text and special tokens of a test's choice.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/bpe.h"

namespace quaver::test {

inline std::unique_ptr<BpeTokenizer> chat_tokenizer(const std::vector<std::string>& special) {
  BpeDefinition definition;
  for (int byte = 0; byte < 256; ++byte) definition.tokens.emplace_back(1, static_cast<char>(byte));
  definition.in_model.assign(256, true);
  definition.end_of_text = 256;
  const auto add = [&](const std::string& name) {
    definition.added.push_back({.id = static_cast<std::int32_t>(definition.tokens.size()), .content = name});
    definition.tokens.push_back(name);
    definition.in_model.push_back(false);
  };
  add("<|endoftext|>");
  for (const std::string& name : special) add(name);
  return std::make_unique<BpeTokenizer>(definition);
}

}  // namespace quaver::test
