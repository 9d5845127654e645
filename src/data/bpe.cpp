#include "data/bpe.h"

#include <algorithm>
#include <fmt/format.h>
#include <queue>

#include "data/hash.h"
#include "data/normalize.h"
#include "quaver/error.h"

namespace quaver {
namespace {

constexpr std::size_t max_cached_piece_bytes = 64;
constexpr std::size_t max_cached_pieces = 1 << 18;

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 | static_cast<std::uint32_t>(right);
}

std::uint64_t flags_of(const AddedToken& token) {
  return static_cast<std::uint64_t>(token.matched) | static_cast<std::uint64_t>(token.space) << 8 |
         static_cast<std::uint64_t>(token.words) << 16;
}

// What text becomes by default. Special tokens count by content alone, since text never becomes them. Normalization
// does not count: data sets of tokenizers that normalize were made before it was done, and they still open.
std::uint64_t hash_of_definition(const BpeDefinition& definition) {
  std::vector<const AddedToken*> added(definition.tokens.size());
  for (const AddedToken& token : definition.added) added[static_cast<std::size_t>(token.id)] = &token;
  Fnv64 hash;
  hash.add("quaver bpe");
  for (const SplitPattern pattern : definition.splits) hash.add(regex_of(pattern));
  hash.add(static_cast<std::uint64_t>(definition.whole_pieces));
  hash.add(static_cast<std::uint64_t>(definition.end_of_text));
  hash.add(definition.tokens.size());
  for (std::size_t id = 0; id < definition.tokens.size(); ++id) {
    hash.add(definition.tokens[id].size());
    hash.add(definition.tokens[id]);
    hash.add(static_cast<std::uint64_t>(added[id] != nullptr));
    if (added[id] != nullptr && added[id]->role == TokenRole::ordinary) hash.add(flags_of(*added[id]));
  }
  hash.add(definition.merges.size());
  for (const BpeMerge& merge : definition.merges) {
    hash.add(pair_key(merge.left, merge.right));
    hash.add(static_cast<std::uint64_t>(merge.result));
  }
  for (const std::int32_t id : definition.prefix) hash.add(static_cast<std::uint64_t>(id));
  return hash.value();
}

// Tokens that are looked for in normalized text are normalized themselves.
std::vector<AddedToken> as_matched(const BpeDefinition& definition) {
  std::vector<AddedToken> tokens = definition.added;
  for (AddedToken& token : tokens) {
    std::string storage;
    const bool changes = definition.normalization == TextNormalization::nfc && token.matched == MatchedText::normalized;
    if (changes) token.content = std::string(normalize_nfc(token.content, storage));
  }
  return tokens;
}

// A piece while it is merged: a list of symbols, each knowing its neighbors.
struct Symbol {
  std::int32_t id;
  std::int32_t previous;
  std::int32_t next;
};

// A pair that may be merged. Stale once a side changed, which is seen by comparing the ids.
struct Candidate {
  std::int32_t rank;
  std::int32_t position;
  std::int32_t left;
  std::int32_t right;
  std::int32_t result;

  bool operator>(const Candidate& other) const {
    return rank != other.rank ? rank > other.rank : position > other.position;
  }
};

constexpr std::int32_t merged_away = -1;

}  // namespace

BpeTokenizer::BpeTokenizer(BpeDefinition definition, std::string_view source, std::string json)
    : definition_(std::move(definition)), json_(std::move(json)) {
  check_added(source);
  index_tokens(source);
  index_merges(source);
  hash_ = hash_of_definition(definition_);
  const std::vector<AddedToken> matched = as_matched(definition_);
  in_raw_text_ = AddedTokenFinder(matched, MatchedText::raw);
  in_normalized_text_ = AddedTokenFinder(matched, MatchedText::normalized);
}

void BpeTokenizer::check_added(std::string_view source) const {
  const std::size_t count = definition_.tokens.size();
  if (definition_.in_model.size() != count || count > 1u << 30) {
    throw Error(fmt::format("{}: {} tokens with {} kinds", source, count, definition_.in_model.size()));
  }
  bool ends = false;
  for (const AddedToken& token : definition_.added) {
    if (token.id < 0 || token.id >= vocab_size()) {
      throw Error(fmt::format("{}: the added token {} is outside the vocabulary of {}", source, token.id, count));
    }
    ends = ends || token.id == definition_.end_of_text;
  }
  if (!ends) {
    throw Error(fmt::format("{}: the end-of-text id {} is not a special token", source, definition_.end_of_text));
  }
}

void BpeTokenizer::index_tokens(std::string_view source) {
  const std::size_t count = definition_.tokens.size();
  ids_.reserve(count);
  for (std::size_t id = 0; id < count; ++id) {
    if (!definition_.in_model[id]) continue;
    const std::string& bytes = definition_.tokens[id];
    const auto [place, is_new] = ids_.emplace(bytes, static_cast<std::int32_t>(id));
    if (bytes.empty() || !is_new) {
      throw Error(fmt::format("{}: token {} is {}", source, id,
                              bytes.empty() ? "empty" : fmt::format("the same as token {}", place->second)),
                  "the file is damaged; get it again");
    }
  }
  byte_ids_.resize(256);
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids_.find(std::string(1, static_cast<char>(byte)));
    if (found == ids_.end()) {
      throw Error(fmt::format("{}: no token for the single byte {:#04x}", source, byte),
                  "use a byte-level BPE tokenizer, which can write any text");
    }
    byte_ids_[static_cast<std::size_t>(byte)] = found->second;
  }
}

void BpeTokenizer::index_merges(std::string_view source) {
  const auto ordinary = [&](std::int32_t id) {
    return id >= 0 && id < vocab_size() && definition_.in_model[static_cast<std::size_t>(id)];
  };
  const auto bytes = [&](std::int32_t id) -> const std::string& {
    return definition_.tokens[static_cast<std::size_t>(id)];
  };
  merges_.reserve(definition_.merges.size());
  std::int32_t rank = 0;
  for (const BpeMerge& merge : definition_.merges) {
    const bool known = ordinary(merge.left) && ordinary(merge.right) && ordinary(merge.result);
    if (!known || bytes(merge.result) != bytes(merge.left) + bytes(merge.right)) {
      throw Error(fmt::format("{}: merge {} joins {} and {} into {}, which are not such tokens", source, rank,
                              merge.left, merge.right, merge.result),
                  "the file is damaged; get it again");
    }
    if (!merges_.emplace(pair_key(merge.left, merge.right), RankedMerge{rank, merge.result}).second) {
      throw Error(fmt::format("{}: merge {} is listed twice", source, rank), "the file is damaged; get it again");
    }
    ++rank;
  }
}

std::string BpeTokenizer::name() const { return fmt::format("bpe:{}", vocab_size()); }

const BpeTokenizer::RankedMerge* BpeTokenizer::find_merge(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

// With a heap of candidates, so that a megabyte without a space costs n log n, not n².
void BpeTokenizer::merge_piece(std::string_view piece, std::vector<std::int32_t>& out) const {
  if (definition_.whole_pieces == WholePieces::take) {
    if (const auto whole = ids_.find(piece); whole != ids_.end()) {
      out.push_back(whole->second);
      return;
    }
  }
  const auto count = static_cast<std::int32_t>(piece.size());
  std::vector<Symbol> symbols(piece.size());
  const auto at = [&](std::int32_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
  for (std::int32_t i = 0; i < count; ++i) {
    const auto byte = static_cast<unsigned char>(piece[static_cast<std::size_t>(i)]);
    at(i) = {byte_ids_[byte], i - 1, i + 1 < count ? i + 1 : -1};
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue;
  const auto consider = [&](std::int32_t i) {
    if (i < 0 || at(i).next < 0) return;
    const std::int32_t left = at(i).id;
    const std::int32_t right = at(at(i).next).id;
    if (const RankedMerge* merge = find_merge(left, right)) {
      queue.push({merge->rank, i, left, right, merge->result});
    }
  };
  for (std::int32_t i = 0; i + 1 < count; ++i) consider(i);
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = at(best.position);
    if (left.id != best.left || left.next < 0 || at(left.next).id != best.right) continue;
    Symbol& right = at(left.next);
    left.id = best.result;
    left.next = right.next;
    right.id = merged_away;
    if (left.next >= 0) at(left.next).previous = best.position;
    consider(best.position);
    consider(left.previous);
  }
  for (std::int32_t i = 0; i >= 0; i = at(i).next) out.push_back(at(i).id);
}

void BpeTokenizer::encode_cached(std::string_view piece, std::vector<std::int32_t>& out) const {
  if (const auto found = cache_.find(piece); found != cache_.end()) {
    const auto first = cached_ids_.begin() + found->second.first;
    out.insert(out.end(), first, first + found->second.count);
    return;
  }
  const std::size_t before = out.size();
  merge_piece(piece, out);
  if (piece.size() > max_cached_piece_bytes) return;
  if (cache_.size() >= max_cached_pieces) {
    cache_.clear();
    cached_ids_.clear();
  }
  cache_.emplace(piece, CachedPiece{static_cast<std::uint32_t>(cached_ids_.size()),
                                    static_cast<std::uint32_t>(out.size() - before)});
  cached_ids_.insert(cached_ids_.end(), out.begin() + static_cast<std::ptrdiff_t>(before), out.end());
}

void BpeTokenizer::encode(std::string_view text, SpecialTokens special, std::vector<std::int32_t>& out) const {
  // Pieces are indexed with 32 bits; nobody's document is longer, but a caller could try.
  if (text.size() > 1u << 30) {
    throw Error(fmt::format("a text of {} bytes is too long to encode at once", text.size()),
                "encode it in documents of less than 1 GiB");
  }
  const std::scoped_lock lock(cache_lock_);
  in_raw_text_.split(
      text, special, [&](std::string_view part) { encode_part(part, special, out); },
      [&](std::int32_t id) { out.push_back(id); });
}

void BpeTokenizer::encode_part(std::string_view text, SpecialTokens special, std::vector<std::int32_t>& out) const {
  std::string storage;
  if (definition_.normalization == TextNormalization::nfc) text = normalize_nfc(text, storage);
  const auto encode_pieces = [&](std::string_view part) {
    for_each_piece(definition_.splits, part, [&](std::string_view piece) { encode_cached(piece, out); });
  };
  in_normalized_text_.split(text, special, encode_pieces, [&](std::int32_t id) { out.push_back(id); });
}

std::string BpeTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) {
    if (id < 0 || id >= vocab_size()) {
      throw Error(fmt::format("token {} is outside the vocabulary of {}", id, vocab_size()),
                  "decode with the tokenizer the tokens were made with");
    }
    text += definition_.tokens[static_cast<std::size_t>(id)];
  }
  return text;
}

}  // namespace quaver
