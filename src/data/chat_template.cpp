#include "data/chat_template.h"

#include <array>
#include <fmt/format.h>
#include <optional>
#include <string_view>

#include "quaver/error.h"

namespace quaver {
namespace {

constexpr std::array<std::string_view, 2> chatml_tokens{"<|im_start|>", "<|im_end|>"};
constexpr std::array<std::string_view, 4> llama3_tokens{"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
                                                        "<|begin_of_text|>"};

std::optional<std::int32_t> find_special(const Tokenizer& tokenizer, std::string_view name) {
  const std::vector<std::int32_t> ids = tokenizer.encode(name, SpecialTokens::parsed);
  return ids.size() == 1 ? std::optional(ids.front()) : std::nullopt;
}

std::int32_t require_special(const Tokenizer& tokenizer, std::string_view name) {
  if (const std::optional<std::int32_t> id = find_special(tokenizer, name)) return *id;
  throw Error(fmt::format("tokenizer {} has no special token {}", tokenizer.name(), name),
              "choose another data.template, or the tokenizer of a model that was trained with it");
}

bool has_all(const Tokenizer& tokenizer, std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    if (!find_special(tokenizer, name)) return false;
  }
  return true;
}

ChatTemplate resolved(ChatTemplate asked, const Tokenizer& tokenizer) {
  if (asked != ChatTemplate::automatic) return asked;
  if (has_all(tokenizer, chatml_tokens)) return ChatTemplate::chatml;
  if (has_all(tokenizer, llama3_tokens)) return ChatTemplate::llama3;
  throw Error(fmt::format("tokenizer {} has the special tokens of no chat template", tokenizer.name()),
              "fine-tune on \"prompt\" and \"completion\", or use the tokenizer of a chat model, with <|im_start|> "
              "(ChatML) or <|start_header_id|> (Llama 3)");
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view space = " \t\r\n\v\f";
  const std::size_t first = text.find_first_not_of(space);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(space) - first + 1);
}

// Appends tokens, with a loss where the assistant speaks.
class Writer {
 public:
  explicit Writer(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  enum class Loss : std::uint8_t { none, counted };

  void special(std::string_view name, Loss loss = Loss::none) {
    const std::int32_t id = require_special(tokenizer_, name);
    tokens_.push_back(loss == Loss::counted ? id : ~id);
  }
  void text(std::string_view text, Loss loss = Loss::none) {
    const std::size_t first = tokens_.size();
    tokenizer_.encode(text, tokens_);
    if (loss == Loss::counted) return;
    for (std::size_t i = first; i < tokens_.size(); ++i) tokens_[i] = ~tokens_[i];
  }
  // What opens a turn and what is said in it. The assistant's begins a text of its own, as it does when the model
  // answers; others are tokenized as one with what opens the turn.
  void turn(std::string opening, Speaker speaker, std::string_view content) {
    if (speaker != Speaker::assistant) return text(opening.append(content));
    text(opening);
    text(content, Loss::counted);
  }
  static Loss end_of(Speaker speaker) { return speaker == Speaker::assistant ? Loss::counted : Loss::none; }

  std::vector<std::int32_t> take() { return std::move(tokens_); }

 private:
  const Tokenizer& tokenizer_;
  std::vector<std::int32_t> tokens_;
};

void write_chatml(Writer& out, std::span<const ChatMessage> messages) {
  for (const ChatMessage& message : messages) {
    out.special("<|im_start|>");
    out.turn(fmt::format("{}\n", name_of(message.speaker)), message.speaker, message.content);
    out.special("<|im_end|>", Writer::end_of(message.speaker));
    out.text("\n");
  }
}

void open_chatml_answer(Writer& out) {
  out.special("<|im_start|>");
  out.text("assistant\n");
}

void write_llama3(Writer& out, std::span<const ChatMessage> messages) {
  out.special("<|begin_of_text|>");
  for (const ChatMessage& message : messages) {
    out.special("<|start_header_id|>");
    out.text(message.speaker == Speaker::tool ? "ipython" : name_of(message.speaker));
    out.special("<|end_header_id|>");
    out.turn("\n\n", message.speaker, trimmed(message.content));
    out.special("<|eot_id|>", Writer::end_of(message.speaker));
  }
}

void open_llama3_answer(Writer& out) {
  out.special("<|start_header_id|>");
  out.text("assistant");
  out.special("<|end_header_id|>");
  out.text("\n\n");
}

}  // namespace

std::string_view name_of(Speaker speaker) {
  switch (speaker) {
    case Speaker::system:
      return "system";
    case Speaker::user:
      return "user";
    case Speaker::assistant:
      return "assistant";
    case Speaker::tool:
      break;
  }
  return "tool";
}

std::vector<std::int32_t> tokenize_chat(std::span<const ChatMessage> messages, const Tokenizer& tokenizer,
                                        ChatTemplate chat_template) {
  Writer out(tokenizer);
  if (resolved(chat_template, tokenizer) == ChatTemplate::chatml) {
    write_chatml(out, messages);
  } else {
    write_llama3(out, messages);
  }
  return out.take();
}

ChatPrompt prompt_of_chat(std::span<const ChatMessage> messages, const Tokenizer& tokenizer,
                          ChatTemplate chat_template) {
  Writer out(tokenizer);
  std::string_view end_of_turn;
  if (resolved(chat_template, tokenizer) == ChatTemplate::chatml) {
    write_chatml(out, messages);
    open_chatml_answer(out);
    end_of_turn = "<|im_end|>";
  } else {
    write_llama3(out, messages);
    open_llama3_answer(out);
    end_of_turn = "<|eot_id|>";
  }
  ChatPrompt prompt{out.take(), require_special(tokenizer, end_of_turn)};
  for (std::int32_t& token : prompt.ids) token = id_of(token);
  return prompt;
}

}  // namespace quaver
