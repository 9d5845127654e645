// Text to token ids and back. Two kinds: bytes, which needs no file, and BPE (bpe.h), trained here or read
// from a Hugging Face tokenizer.json. Both give decode(encode(text)) == text, but for what a tokenizer.json asks for
// that loses something: normalization, and added tokens that take the space beside them. Bytes that are not UTF-8
// survive tokenization by bytes alone: BPE puts U+FFFD in their place, as those who read files for Hugging Face's
// tokenizers do.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/added_tokens.h"

namespace quaver {

// How the token that ends a document is written out; plain text never becomes it.
inline constexpr std::string_view end_of_text_name = "<|endoftext|>";

// Functions are safe to call from several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string name() const = 0;
  virtual int vocab_size() const = 0;
  virtual int end_of_text() const = 0;  // the id that ends a document

  // Appends the ids of text to out. Documents are encoded with SpecialTokens::as_text: a special token's name in them
  // is encoded as the characters.
  virtual void encode(std::string_view text, SpecialTokens special, std::vector<std::int32_t>& out) const = 0;

  // What a document begins with, such as Llama 3's <|begin_of_text|>; encode() does not add it.
  virtual std::span<const std::int32_t> prefix() const { return {}; }

  // The bytes of the ids; special tokens come out as their names. Error on an id outside the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  // What the id stands for inside a text: decode() of it alone, but for a space that only the beginning of a text
  // loses.
  virtual std::string text_of(std::int32_t id) const { return decode(std::span(&id, 1)); }

  // Equal for tokenizers that give the same ids, and the same in every process: shards carry it.
  virtual std::uint64_t hash() const = 0;

  // The contents of a tokenizer.json, or empty for a tokenizer that needs none.
  virtual std::string to_json() const = 0;

  void encode(std::string_view text, std::vector<std::int32_t>& out) const {
    encode(text, SpecialTokens::as_text, out);
  }
  std::vector<std::int32_t> encode(std::string_view text, SpecialTokens special = SpecialTokens::as_text) const {
    std::vector<std::int32_t> ids;
    encode(text, special, ids);
    return ids;
  }
};

// 256 bytes and end-of-text, id 256.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

// "bytes", a tokenizer.json, or a folder that holds one.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& spec);

}  // namespace quaver
