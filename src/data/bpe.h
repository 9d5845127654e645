// Byte-pair encoding: text is cut into pieces (pretokenize.h), a piece starts as its bytes, and the neighboring pair
// that was learned first is merged until none is left. Trained here, or read from a tokenizer.json, with the ids that
// Hugging Face's tokenizers give: byte-level BPE (GPT-2, Llama 3, Qwen, SmolLM2) and SentencePiece's form of it (Llama
// 2, Mistral), in which a piece starts as its characters.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/added_tokens.h"
#include "data/pretokenize.h"
#include "data/tokenizer.h"

namespace quaver {

// Hash for maps from strings that are looked up by view.
struct StringHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
};
template <class Value>
using StringMap = std::unordered_map<std::string, Value, StringHash, std::equal_to<>>;

struct BpeMerge {
  std::int32_t left;
  std::int32_t right;
  std::int32_t result;
};

// A piece that is itself in the vocabulary: merged from its bytes like any other, or taken whole (Llama 3).
enum class WholePieces : std::uint8_t { merge, take };

enum class TextNormalization : std::uint8_t { none, nfc };

// SentencePiece's form of BPE writes a space as ▁, and puts one before the text. Characters that are no tokens become
// their bytes, which have tokens of their own (<0x0A>). none: byte-level BPE.
enum class SpaceMark : std::uint8_t {
  none,
  prepend,  // one before every part of the text between added tokens, as the normalizer Prepend does
  first,    // one before the text, unless it begins with one, as the pre-tokenizer Metaspace does
  always,   // the same with every part
  never,
};

// Everything that defines the ids. Token ids are indices into `tokens`.
struct BpeDefinition {
  TextNormalization normalization = TextNormalization::none;
  SpaceMark space_mark = SpaceMark::none;
  std::vector<SplitPattern> splits{SplitPattern::gpt2};  // one after the other
  WholePieces whole_pieces = WholePieces::merge;
  std::vector<std::string> tokens;  // the bytes of each token, or the content of one that only text can hold
  std::vector<bool> in_model;       // as long as tokens: whether pieces are merged into it, or only text holds it
  std::vector<AddedToken> added;
  std::vector<BpeMerge> merges;      // most urgent first
  std::vector<std::int32_t> prefix;  // see Tokenizer::prefix
  std::int32_t end_of_text = 0;
};

class BpeTokenizer final : public Tokenizer {
 public:
  using Tokenizer::encode;

  // Error where the definition contradicts itself; `source` names it there. `json` is the file it was read from, if
  // any.
  explicit BpeTokenizer(BpeDefinition definition, std::string_view source = "tokenizer", std::string json = "");

  std::string name() const override;
  int vocab_size() const override { return static_cast<int>(definition_.tokens.size()); }
  int end_of_text() const override { return definition_.end_of_text; }
  void encode(std::string_view text, SpecialTokens special, std::vector<std::int32_t>& out) const override;
  std::span<const std::int32_t> prefix() const override { return definition_.prefix; }
  std::string decode(std::span<const std::int32_t> ids) const override;
  std::string text_of(std::int32_t id) const override;
  std::uint64_t hash() const override { return hash_; }
  std::string to_json() const override;  // Hugging Face's tokenizer.json; the one it was read from, byte for byte

  const BpeDefinition& definition() const { return definition_; }

 private:
  struct RankedMerge {
    std::int32_t rank;
    std::int32_t result;
  };
  struct PartOptions {
    SpecialTokens special;
    bool is_first;  // the text begins with it
  };
  struct CachedPiece {
    std::uint32_t first;  // in cached_ids_
    std::uint32_t count;
  };

  void check_added(std::string_view source) const;
  void index_tokens(std::string_view source);
  void index_bytes(std::string_view source);
  void index_merges(std::string_view source);
  const RankedMerge* find_merge(std::int32_t left, std::int32_t right) const;
  std::vector<std::int32_t> symbols_of(std::string_view piece) const;
  void merge_piece(std::string_view piece, std::vector<std::int32_t>& out) const;
  void encode_cached(std::string_view piece, std::vector<std::int32_t>& out) const;
  void encode_part(std::string_view text, PartOptions options, std::vector<std::int32_t>& out) const;
  void encode_pieces(std::string_view text, std::vector<std::int32_t>& out) const;
  std::string render_json() const;

  BpeDefinition definition_;
  std::string json_;  // empty: made here
  std::uint64_t hash_ = 0;
  AddedTokenFinder in_raw_text_;
  AddedTokenFinder in_normalized_text_;
  std::vector<std::int32_t> byte_ids_;                     // the token of each single byte
  std::unordered_map<std::int32_t, char> bytes_of_ids_;    // of SentencePiece, whose tokens of bytes have names
  std::unordered_map<std::uint64_t, RankedMerge> merges_;  // by left << 32 | right
  StringMap<std::int32_t> ids_;                            // by bytes; tokens of the model only

  // Text repeats its words, so pieces are merged once. The lock is taken once per encode().
  mutable std::mutex cache_lock_;
  mutable StringMap<CachedPiece> cache_;
  mutable std::vector<std::int32_t> cached_ids_;
};

// Collects words from any amount of text, holding only the distinct ones, then learns the merges.
class BpeTrainer {
 public:
  using Progress = std::function<void(int merges_done, int merges_total)>;

  explicit BpeTrainer(SplitPattern pattern = SplitPattern::gpt2) : pattern_(pattern) {}

  void add(std::string_view text);

  // Ids: the 256 bytes, the merges in the order they were learned, end-of-text last. Stops short of vocab_size where
  // no pair occurs twice. Ties go to the pair with the smaller ids, so equal text gives an equal tokenizer.
  std::unique_ptr<BpeTokenizer> train(int vocab_size, const Progress& progress = {}) const;

 private:
  SplitPattern pattern_;
  StringMap<std::int64_t> words_;
};

std::unique_ptr<BpeTokenizer> train_bpe(std::span<const std::string> samples, int vocab_size,
                                        const BpeTrainer::Progress& progress = {});

// Reads a tokenizer.json; `source` names it in errors. Refuses what it could not reproduce exactly, by name: other
// models, normalizers and pre-tokenizers, ids with gaps, merges of unknown tokens.
std::unique_ptr<BpeTokenizer> parse_bpe(std::string_view json, std::string_view source);
std::unique_ptr<BpeTokenizer> load_bpe(const std::filesystem::path& path);

}  // namespace quaver
