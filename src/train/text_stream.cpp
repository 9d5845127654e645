#include "train/text_stream.h"

#include <algorithm>
#include <span>

#include "io/utf8.h"

namespace quaver {

TextStream::TextStream(const Tokenizer& tokenizer, std::string_view prompt, std::vector<std::string> stop)
    : tokenizer_(tokenizer), stop_(std::move(stop)), begins_text_(prompt.empty()) {}

std::string TextStream::add(std::int32_t token) {
  const std::size_t before = text_.size();
  text_ += begins_text_ ? tokenizer_.decode(std::span(&token, 1)) : tokenizer_.text_of(token);
  begins_text_ = false;
  stopped_ = cut_at_stop(before);
  return release(stopped_ ? text_.size() : presentable());
}

std::string TextStream::finish() { return release(text_.size()); }

// The first stop string that ends behind `from`.
bool TextStream::cut_at_stop(std::size_t from) {
  std::size_t first = std::string::npos;
  for (const std::string& stop : stop_) {
    const std::size_t begin = from >= stop.size() ? from - stop.size() + 1 : 0;
    first = std::min(first, text_.find(stop, begin));
  }
  if (first == std::string::npos) return false;
  text_.resize(first);
  return true;
}

std::size_t TextStream::presentable() const {
  std::size_t end = whole_characters(text_);
  for (const std::string& stop : stop_) {
    for (std::size_t held = std::min(stop.size() - 1, text_.size()); held > 0; --held) {
      if (!text_.ends_with(std::string_view(stop).substr(0, held))) continue;
      end = std::min(end, text_.size() - held);
      break;
    }
  }
  return whole_characters(std::string_view(text_).substr(0, end));
}

std::string TextStream::release(std::size_t end) {
  const std::size_t from = std::min(shown_, end);
  shown_ = std::max(shown_, end);
  return text_.substr(from, end - from);
}

}  // namespace quaver
