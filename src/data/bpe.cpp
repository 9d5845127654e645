#include "data/bpe.h"

#include <algorithm>
#include <fmt/format.h>
#include <queue>

#include "data/hash.h"
#include "data/normalize.h"
#include "io/utf8.h"
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
  if (definition.space_mark != SpaceMark::none) hash.add(static_cast<std::uint64_t>(definition.space_mark));
  return hash.value();
}

constexpr std::string_view space_mark = "\u2581";

std::string with_marks(std::string_view text) {
  std::string marked;
  for (const char c : text) c == ' ' ? marked.append(space_mark) : marked.append(1, c);
  return marked;
}

// The text as the normalizer makes it, which may be in `storage`.
std::string_view normalize(const BpeDefinition& definition, std::string_view text, std::string& storage) {
  if (definition.normalization == TextNormalization::nfc) return normalize_nfc(text, storage);
  if (definition.space_mark != SpaceMark::prepend || text.empty()) return text;
  storage = std::string(space_mark) + with_marks(text);
  return storage;
}

// Tokens that are looked for in normalized text are normalized themselves.
std::vector<AddedToken> as_matched(const BpeDefinition& definition) {
  std::vector<AddedToken> tokens = definition.added;
  for (AddedToken& token : tokens) {
    std::string storage;
    if (token.matched == MatchedText::normalized)
      token.content = std::string(normalize(definition, token.content, storage));
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
  index_bytes(source);
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
}

void BpeTokenizer::index_bytes(std::string_view source) {
  const bool named = definition_.space_mark != SpaceMark::none;
  byte_ids_.resize(256);
  for (int byte = 0; byte < 256; ++byte) {
    const auto found = ids_.find(named ? fmt::format("<0x{:02X}>", byte) : std::string(1, static_cast<char>(byte)));
    if (found == ids_.end()) {
      throw Error(fmt::format("{}: no token for the single byte {:#04x}", source, byte),
                  "use a BPE tokenizer with a token for every byte, which can write any text");
    }
    byte_ids_[static_cast<std::size_t>(byte)] = found->second;
    if (named) bytes_of_ids_.emplace(found->second, static_cast<char>(byte));
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

// What a piece starts as: its bytes, or its characters where these are tokens.
std::vector<std::int32_t> BpeTokenizer::symbols_of(std::string_view piece) const {
  const bool by_characters = definition_.space_mark != SpaceMark::none;
  std::vector<std::int32_t> symbols;
  symbols.reserve(piece.size());
  for (std::size_t i = 0; i < piece.size();) {
    const auto bytes = by_characters ? static_cast<std::size_t>(decode_utf8(piece, i).bytes) : std::size_t{1};
    const auto known = by_characters ? ids_.find(piece.substr(i, bytes)) : ids_.end();
    if (known != ids_.end()) {
      symbols.push_back(known->second);
    } else {
      for (const char c : piece.substr(i, bytes)) symbols.push_back(byte_ids_[static_cast<unsigned char>(c)]);
    }
    i += bytes;
  }
  return symbols;
}

// With a heap of candidates, so that a megabyte without a space costs n log n, not n².
void BpeTokenizer::merge_piece(std::string_view piece, std::vector<std::int32_t>& out) const {
  if (definition_.whole_pieces == WholePieces::take) {
    if (const auto whole = ids_.find(piece); whole != ids_.end()) {
      out.push_back(whole->second);
      return;
    }
  }
  const std::vector<std::int32_t> first = symbols_of(piece);
  const auto count = static_cast<std::int32_t>(first.size());
  std::vector<Symbol> symbols(first.size());
  const auto at = [&](std::int32_t i) -> Symbol& { return symbols[static_cast<std::size_t>(i)]; };
  for (std::int32_t i = 0; i < count; ++i) {
    at(i) = {first[static_cast<std::size_t>(i)], i - 1, i + 1 < count ? i + 1 : -1};
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
  std::string mended;
  if (find_invalid_utf8(text) != std::string_view::npos) text = mended = replace_invalid_utf8(text);
  const std::scoped_lock lock(cache_lock_);
  const auto on_part = [&](std::string_view part) { encode_part(part, {special, part.data() == text.data()}, out); };
  in_raw_text_.split(text, special, on_part, [&](std::int32_t id) { out.push_back(id); });
}

void BpeTokenizer::encode_part(std::string_view text, PartOptions options, std::vector<std::int32_t>& out) const {
  std::string storage;
  const std::string_view normalized = normalize(definition_, text, storage);
  const auto on_part = [&](std::string_view part) {
    const SpaceMark mark = definition_.space_mark;
    if (mark == SpaceMark::none || mark == SpaceMark::prepend) return encode_pieces(part, out);
    std::string marked = with_marks(part);
    const bool is_first = options.is_first && part.data() == normalized.data();
    const bool wanted = mark == SpaceMark::always || (mark == SpaceMark::first && is_first);
    if (wanted && !marked.starts_with(space_mark)) marked.insert(0, space_mark);
    encode_pieces(marked, out);
  };
  in_normalized_text_.split(normalized, options.special, on_part, [&](std::int32_t id) { out.push_back(id); });
}

void BpeTokenizer::encode_pieces(std::string_view text, std::vector<std::int32_t>& out) const {
  for_each_piece(definition_.splits, text, [&](std::string_view piece) { encode_cached(piece, out); });
}

std::string BpeTokenizer::text_of(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) {
    throw Error(fmt::format("token {} is outside the vocabulary of {}", id, vocab_size()),
                "decode with the tokenizer the tokens were made with");
  }
  std::string text = definition_.tokens[static_cast<std::size_t>(id)];
  if (definition_.space_mark == SpaceMark::none) return text;
  if (const auto byte = bytes_of_ids_.find(id); byte != bytes_of_ids_.end()) return {byte->second};
  for (std::size_t at = text.find(space_mark); at != std::string::npos; at = text.find(space_mark, at)) {
    text.replace(at, space_mark.size(), " ");
  }
  return text;
}

// The space that encoding puts before a text is taken away again.
std::string BpeTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) text += text_of(id);
  const bool adds_space = definition_.space_mark != SpaceMark::none && definition_.space_mark != SpaceMark::never;
  if (adds_space && text.starts_with(' ')) text.erase(0, 1);
  return text;
}

}  // namespace quaver
