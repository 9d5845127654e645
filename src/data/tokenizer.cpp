#include "data/tokenizer.h"

#include <fmt/format.h>

#include "data/bpe.h"
#include "data/hash.h"
#include "quaver/error.h"

namespace quaver {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  using Tokenizer::encode;

  std::string name() const override { return "bytes"; }
  int vocab_size() const override { return end_id + 1; }
  int end_of_text() const override { return end_id; }

  void encode(std::string_view text, SpecialTokens special, std::vector<std::int32_t>& out) const override {
    const auto append = [&](std::string_view part) {
      for (const char c : part) out.push_back(static_cast<unsigned char>(c));
    };
    out.reserve(out.size() + text.size());
    end_of_text_.split(text, special, append, [&](std::int32_t id) { out.push_back(id); });
  }

  std::string decode(std::span<const std::int32_t> ids) const override {
    std::string text;
    text.reserve(ids.size());
    for (const std::int32_t id : ids) {
      if (id < 0 || id > end_id) {
        throw Error(fmt::format("token {} is outside the byte vocabulary of {}", id, vocab_size()),
                    "decode with the tokenizer the tokens were made with");
      }
      if (id == end_id) {
        text += end_of_text_name;
      } else {
        text.push_back(static_cast<char>(id));
      }
    }
    return text;
  }

  std::uint64_t hash() const override { return hash_of("quaver bytes 256+1"); }
  std::string to_json() const override { return ""; }

 private:
  static constexpr std::int32_t end_id = 256;
  AddedTokenFinder end_of_text_{{{.id = end_id, .content = std::string(end_of_text_name)}}, MatchedText::raw};
};

}  // namespace

std::unique_ptr<Tokenizer> make_byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

std::unique_ptr<Tokenizer> load_tokenizer(const std::filesystem::path& spec) {
  if (spec == "bytes") return make_byte_tokenizer();
  if (std::filesystem::is_directory(spec)) return load_bpe(spec / "tokenizer.json");
  if (!std::filesystem::exists(spec)) {
    throw Error(fmt::format("no tokenizer at {}", spec.string()), "give \"bytes\" or the path of a tokenizer.json");
  }
  return load_bpe(spec);
}

}  // namespace quaver
