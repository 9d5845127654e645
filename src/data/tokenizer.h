// Text to token ids and back. Two kinds: bytes, which needs no file, and byte-level BPE (bpe.h), trained here or read
// from a Hugging Face tokenizer.json. Both give decode(encode(text)) == text for any bytes at all.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quaver {

// How the token that ends a document is written out; encode() never produces it from text.
inline constexpr std::string_view end_of_text_name = "<|endoftext|>";

// Functions are safe to call from several threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string name() const = 0;
  virtual int vocab_size() const = 0;
  virtual int end_of_text() const = 0;  // the id that ends a document

  // Appends the ids of text to out. Text is only text: a special token's name in it is encoded as the characters.
  virtual void encode(std::string_view text, std::vector<std::int32_t>& out) const = 0;

  // The bytes of the ids; special tokens come out as their names. Error on an id outside the vocabulary.
  virtual std::string decode(std::span<const std::int32_t> ids) const = 0;

  // Equal for tokenizers that give the same ids, and the same in every process: shards carry it.
  virtual std::uint64_t hash() const = 0;

  // The contents of a tokenizer.json, or empty for a tokenizer that needs none.
  virtual std::string to_json() const = 0;

  // Where the ids may differ from the original tokenizer's; empty if nowhere.
  virtual std::string note() const { return ""; }

  std::vector<std::int32_t> encode(std::string_view text) const {
    std::vector<std::int32_t> ids;
    encode(text, ids);
    return ids;
  }
};

// 256 bytes and end-of-text, id 256.
std::unique_ptr<Tokenizer> make_byte_tokenizer();

// "bytes", a tokenizer.json, or a folder that holds one.
std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& spec);

}  // namespace quaver
