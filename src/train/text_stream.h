// Text as a model writes it, token by token: what can be shown of it already, and where it must stop.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizer.h"

namespace quaver {

class TextStream {
 public:
  // Begins behind the prompt. The text ends before the first of the stop strings, which may span tokens.
  TextStream(const Tokenizer& tokenizer, std::string_view prompt, std::vector<std::string> stop);

  // What can be shown after one more token: whole characters that are not the beginning of a stop string.
  std::string add(std::int32_t token);
  // All that is left, when no token follows.
  std::string finish();

  bool has_stopped() const { return stopped_; }
  const std::string& text() const { return text_; }  // without the prompt

 private:
  bool cut_at_stop(std::size_t from);
  std::size_t presentable() const;
  std::string release(std::size_t end);

  const Tokenizer& tokenizer_;
  std::vector<std::string> stop_;
  std::string text_;
  std::size_t shown_ = 0;  // bytes of text_
  bool begins_text_;       // nothing is before it, not even a prompt
  bool stopped_ = false;
};

}  // namespace quaver
