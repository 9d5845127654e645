// Examples to fine-tune on, from JSON lines: a prompt and its completion, the messages of a chat, or plain text. They
// are tokenized when they are read and stay in memory; only completions, and what an assistant says, have a loss.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "data/chat_template.h"
#include "data/tokenizer.h"

namespace quaver {

// One after the other, of tokens with and without a loss (id_of).
struct Examples {
  static constexpr std::size_t most_tokens = std::size_t{1} << 28;  // 1 GiB

  std::vector<std::int32_t> tokens;
  std::vector<std::size_t> ends;  // of each, in tokens

  std::size_t count() const { return ends.size(); }
  std::span<const std::int32_t> at(std::size_t i) const {
    const std::size_t begin = i > 0 ? ends[i - 1] : 0;
    return std::span(tokens).subspan(begin, ends[i] - begin);
  }
  void append(std::span<const std::int32_t> example);
};

// One object per line, with "messages" (a list of {"role", "content"}), else "prompt" and "completion", else "text".
// Error, naming file and line, for anything else, and where there are more than most_tokens.
Examples read_examples(const std::filesystem::path& path, const Tokenizer& tokenizer, ChatTemplate chat_template);

// The tokens of one such object. Error without the place, which the caller knows.
std::vector<std::int32_t> tokenize_example(std::string_view line, const Tokenizer& tokenizer,
                                           ChatTemplate chat_template);

// What a model is asked: a text to be continued, or where there are messages a chat to be answered.
struct Prompt {
  std::string text;
  std::vector<ChatMessage> messages = {};
};

// An object with "messages", the last of them not the assistant's, or else "prompt". Error without the place.
Prompt parse_prompt(std::string_view line);

// Those to train on and those to validate with: a share of them, evenly spread and at least one.
std::pair<Examples, Examples> split_examples(const Examples& all, double valid_share);

}  // namespace quaver
