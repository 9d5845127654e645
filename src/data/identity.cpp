#include "data/identity.h"

#include <fmt/format.h>
#include <string_view>

#include "data/image_source.h"
#include "data/loader.h"

namespace quaver {
namespace {

std::string hexadecimal(std::uint64_t hash) { return fmt::format("{:016x}", hash); }

std::string or_none(const std::string& hash) { return hash.empty() ? "none" : hash; }

// Counts first: they tell a reader more than hashes do.
std::string split_difference(std::string_view split, std::uint64_t tokens_before, std::uint64_t tokens_now,
                             const std::string& hash_before, const std::string& hash_now) {
  if (hash_before.empty() != hash_now.empty()) {
    return fmt::format("{} data: {} → {}", split, hash_before.empty() ? "none" : "some",
                       hash_now.empty() ? "none" : "some");
  }
  if (tokens_before != tokens_now) return fmt::format("{} tokens: {} → {}", split, tokens_before, tokens_now);
  if (hash_before == hash_now) return "";
  return fmt::format("{} data has another content (hash {} → {})", split, hash_before, hash_now);
}

}  // namespace

DataIdentity identity_of(const TokenSource& train, const TokenSource* valid, std::uint64_t tokenizer_hash,
                         int vocab_size) {
  DataIdentity identity;
  identity.train_hash = hexadecimal(train.content_hash());
  identity.train_tokens = train.tokens();
  if (valid != nullptr) {
    identity.valid_hash = hexadecimal(valid->content_hash());
    identity.valid_tokens = valid->tokens();
  }
  if (tokenizer_hash != 0) identity.tokenizer_hash = hexadecimal(tokenizer_hash);
  identity.vocab_size = vocab_size;
  return identity;
}

DataIdentity identity_of(const ImageSource& train, const ImageSource* valid) {
  DataIdentity identity;
  identity.train_hash = hexadecimal(train.content_hash());
  if (valid != nullptr) identity.valid_hash = hexadecimal(valid->content_hash());
  return identity;
}

std::string describe_difference(const DataIdentity& recorded, const DataIdentity& now) {
  if (recorded.vocab_size != now.vocab_size) {
    return fmt::format("vocabulary: {} → {} tokens", recorded.vocab_size, now.vocab_size);
  }
  if (recorded.tokenizer_hash != now.tokenizer_hash) {
    return fmt::format("tokenizer: {} → {}", or_none(recorded.tokenizer_hash), or_none(now.tokenizer_hash));
  }
  std::string train =
      split_difference("training", recorded.train_tokens, now.train_tokens, recorded.train_hash, now.train_hash);
  if (!train.empty()) return train;
  return split_difference("validation", recorded.valid_tokens, now.valid_tokens, recorded.valid_hash, now.valid_hash);
}

}  // namespace quaver
