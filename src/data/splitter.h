// Which part of the text validates. Of many documents each goes by its own hash, so that the split depends neither on
// their order nor on other documents. Of few that would be a matter of luck, and of one file nothing would be left:
// there whole files, and the end of one of them, are set apart until the share that was asked for is reached, and a
// kilobyte at least.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>

namespace quaver {

enum class Split : std::uint8_t { train, valid };

class Splitter {
 public:
  explicit Splitter(double fraction) : fraction_(fraction) {}

  // A document as the splitter sees it. The pieces of one file have the same `unit`; any other document is a unit of
  // its own. Hashes and units are uniform over all 64 bits.
  struct Document {
    std::string_view text;
    std::uint64_t hash;
    std::uint64_t unit;
  };

  // First every document is counted, then decide() is called once, then the same documents come again to be split.
  void count(const Document& document);
  void decide();

  // Files are split, not documents.
  bool splits_files() const { return splits_files_; }

  // So many bytes of a document are for training, the rest is for validation.
  std::size_t training_bytes(const Document& document);

 private:
  bool is_few(std::uint64_t documents) const;
  bool validates(std::uint64_t hash) const;
  std::size_t place_in_unit(const Document& document);

  double fraction_;
  std::uint64_t documents_ = 0;
  std::uint64_t bytes_ = 0;
  std::uint64_t lowest_hash_ = ~std::uint64_t{0};
  std::uint64_t highest_hash_ = 0;
  std::map<std::uint64_t, std::uint64_t> unit_bytes_;  // empty once documents are not few
  bool splits_files_ = false;
  std::uint64_t parted_unit_ = 0;        // units before this one validate, those after it train
  std::uint64_t parted_training_ = 0;    // bytes of this one, which train
  std::uint64_t parted_validation_ = 0;  // and the rest
  std::uint64_t parted_passed_ = 0;      // bytes of this one so far
};

}  // namespace quaver
