// How the messages of a chat become tokens, as the model has learned it: ChatML (Qwen, SmolLM and others) or Llama 3.
// Names of special tokens in the messages themselves stay text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "data/tokenizer.h"

namespace quaver {

enum class ChatTemplate : std::uint8_t { automatic, chatml, llama3 };  // automatic: by the tokenizer's special tokens

enum class Speaker : std::uint8_t { system, user, assistant, tool };

struct ChatMessage {
  Speaker speaker = Speaker::user;
  std::string content;
};

// As tokens of Examples: what the assistant says has a loss, with the token that ends its turn. Error where the
// tokenizer lacks a token of the template.
std::vector<std::int32_t> tokenize_chat(std::span<const ChatMessage> messages, const Tokenizer& tokenizer,
                                        ChatTemplate chat_template);

}  // namespace quaver
