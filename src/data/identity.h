// Which data a run trains on, whatever its path: hashes of the token ids (or images), their counts and the tokenizer. A
// run records it, so that resuming on other data is noticed.
#pragma once

#include <cstdint>
#include <string>

namespace quaver {

class ImageSource;
class TokenSource;

struct DataIdentity {
  std::string train_hash;          // 16 hexadecimal digits, of the ids in order
  std::string valid_hash;          // empty: no validation data
  std::uint64_t train_tokens = 0;  // 0: endless
  std::uint64_t valid_tokens = 0;
  std::string tokenizer_hash;  // empty: none is known
  int vocab_size = 0;
  bool operator==(const DataIdentity&) const = default;
};

// valid may be null; tokenizer_hash 0: none is known.
DataIdentity identity_of(const TokenSource& train, const TokenSource* valid, std::uint64_t tokenizer_hash,
                         int vocab_size);
// Of images; their number is in the hashes alone.
DataIdentity identity_of(const ImageSource& train, const ImageSource* valid);

// The first difference in words, such as "training tokens: 8123 → 9001"; empty if they are equal.
std::string describe_difference(const DataIdentity& recorded, const DataIdentity& now);

}  // namespace quaver
