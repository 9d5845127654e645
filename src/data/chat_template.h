// How the messages of a chat become tokens, as the model has learned it: ChatML (Qwen, SmolLM and others) or Llama 3.
// Names of special tokens in the messages themselves stay text.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace quaver {

enum class ChatTemplate : std::uint8_t { automatic, chatml, llama3 };  // automatic: by the tokenizer's special tokens

enum class Speaker : std::uint8_t { system, user, assistant, tool };
std::string_view name_of(Speaker speaker);

struct ChatMessage {
  Speaker speaker = Speaker::user;
  std::string content;
};

// The id of a token of a chat or of another example: one that has a loss is its id, one that has none is ~id.
constexpr std::int32_t id_of(std::int32_t token) { return token < 0 ? ~token : token; }

// What the assistant says has a loss, with the token that ends its turn. Error where the tokenizer lacks a token of the
// template.
std::vector<std::int32_t> tokenize_chat(std::span<const ChatMessage> messages, const Tokenizer& tokenizer,
                                        ChatTemplate chat_template);

// A chat that is to be answered.
struct ChatPrompt {
  std::vector<std::int32_t> ids;  // the messages, and what opens the assistant's turn
  std::int32_t end_of_turn = 0;   // the token that ends the answer
};
ChatPrompt prompt_of_chat(std::span<const ChatMessage> messages, const Tokenizer& tokenizer,
                          ChatTemplate chat_template);

}  // namespace quaver
