#include "data/splitter.h"

#include <algorithm>
#include <cmath>

#include "data/hash.h"

namespace quaver {
namespace {

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xC0U) == 0x80U; }

// Where `text` may be parted near `place`, which is not its beginning: behind a line or else a word a little before, or
// before the next character.
std::size_t parting_place(std::string_view text, std::size_t place, std::size_t farthest) {
  const std::size_t from = place - std::min(place, farthest);
  for (const std::string_view ends : {std::string_view("\n"), std::string_view(" \t")}) {
    const std::size_t end = text.substr(from, place - from).find_last_of(ends);
    if (end != std::string_view::npos) return from + end + 1;
  }
  while (place < text.size() && continues_character(text[place])) ++place;
  return place;
}

}  // namespace

bool Splitter::is_few(std::uint64_t documents) const {
  constexpr double few = 50;  // to validate with: their number is off by a seventh, as a rule
  return fraction_ > 0 && fraction_ * static_cast<double>(documents) < few;
}

void Splitter::count(const Document& document) {
  ++documents_;
  bytes_ += document.text.size();
  lowest_hash_ = std::min(lowest_hash_, document.hash);
  highest_hash_ = std::max(highest_hash_, document.hash);
  if (is_few(documents_)) {
    unit_bytes_[document.unit] += document.text.size();
  } else {
    unit_bytes_.clear();
  }
}

void Splitter::decide() {
  constexpr std::uint64_t least = 1024;  // a few words cut off a file are no validation set: not one context long
  constexpr std::uint64_t too_little = 10 * least;
  splits_files_ = is_few(documents_) && bytes_ >= too_little;
  if (!splits_files_) return;
  auto wanted = std::max(least, static_cast<std::uint64_t>(std::llround(fraction_ * static_cast<double>(bytes_))));
  wanted = std::min(wanted, bytes_ - 1);  // something is left to train on
  for (const auto& [unit, bytes] : unit_bytes_) {
    parted_unit_ = unit;
    parted_validation_ = std::min(wanted, bytes);
    parted_training_ = bytes - parted_validation_;
    if (wanted < bytes) break;
    wanted -= bytes;
  }
}

// The ends of the hash range are pinned, so that neither side is empty.
bool Splitter::validates(std::uint64_t hash) const {
  if (fraction_ <= 0 || lowest_hash_ >= highest_hash_) return false;
  return hash != highest_hash_ && (hash == lowest_hash_ || unit_interval(hash) < fraction_);
}

std::size_t Splitter::place_in_unit(const Document& document) {
  const std::uint64_t begin = parted_passed_;
  const std::size_t size = document.text.size();
  parted_passed_ += size;
  if (parted_passed_ <= parted_training_) return size;
  if (begin >= parted_training_) return 0;
  // Within a tenth of what validates of this file, so that the share stays what it should be where lines are long.
  const auto farthest = static_cast<std::size_t>(parted_validation_ / 10);
  return parting_place(document.text, parted_training_ - begin, farthest);
}

std::size_t Splitter::training_bytes(const Document& document) {
  if (!splits_files_) return validates(document.hash) ? 0 : document.text.size();
  if (document.unit != parted_unit_) return document.unit < parted_unit_ ? 0 : document.text.size();
  return place_in_unit(document);
}

}  // namespace quaver
