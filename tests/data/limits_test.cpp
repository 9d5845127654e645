// Which documents are taken and where: lengths exactly at the limits, the split at exactly its fraction, and long text
// cut exactly where it may be.
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <sstream>

#include "support/temporary_folder.h"

#include "data/documents.h"
#include "data/hash.h"
#include "data/prepare.h"

namespace quaver {
namespace {

using test::TemporaryFolder;

PrepareReport prepared(const TemporaryFolder& folder, const std::vector<std::string>& documents,
                       const std::function<void(PrepareOptions&)>& change) {
  for (std::size_t i = 0; i < documents.size(); ++i) {
    folder.write("in/" + std::to_string(i) + ".txt", documents[i]);
  }
  PrepareOptions options;
  options.inputs = {folder / "in"};
  options.output = folder / "out";
  options.existing = ExistingDataset::overwrite;
  change(options);
  return prepare(options);
}

TEST(DocumentSize, LimitsAreThoseOfDocumentsThatAreTaken) {
  const TemporaryFolder folder;
  const PrepareReport report = prepared(folder, {"1234", "12345", "1234567", "12345678"}, [](PrepareOptions& options) {
    options.min_bytes = 5;
    options.max_bytes = 7;
    options.valid_fraction = 0;
  });
  EXPECT_EQ(report.documents(), 2U);
  EXPECT_EQ(report.bytes, 12U);
  EXPECT_EQ(report.skipped[static_cast<std::size_t>(SkipReason::too_short)].count, 1U);
  EXPECT_EQ(report.skipped[static_cast<std::size_t>(SkipReason::too_long)].count, 1U);
}

TEST(DocumentSize, BothLimitsMayBeTheSame) {
  const TemporaryFolder folder;
  const PrepareReport report = prepared(folder, {"1234", "12345", "123456"}, [](PrepareOptions& options) {
    options.min_bytes = options.max_bytes = 5;
    options.valid_fraction = 0;
  });
  EXPECT_EQ(report.documents(), 1U);
}

// A document's place in [0, 1): the top 53 bits of its hash.
double place_of(const std::string& text) { return std::ldexp(static_cast<double>(mix_bits(hash_of(text)) >> 11), -53); }

// What lies below the fraction is for validation; the lowest and highest of all are pinned to either side.
TEST(Split, TakesWhatLiesBelowTheFraction) {
  const std::vector<std::string> documents{"one", "two", "three", "four", "five"};
  std::map<double, std::string> by_place;
  for (const std::string& text : documents) by_place[place_of(text)] = text;
  auto middle = by_place.begin();
  std::advance(middle, 2);
  const TemporaryFolder folder;
  const auto validated = [&](double fraction) {
    return prepared(folder, documents, [&](PrepareOptions& options) { options.valid_fraction = fraction; })
        .valid_documents;
  };
  EXPECT_EQ(validated(middle->first), 2U);
  EXPECT_EQ(validated(std::nextafter(middle->first, 1.0)), 3U);
  EXPECT_EQ(validated(1e-12), 1U);
  EXPECT_EQ(validated(0.999999999), 4U);
  EXPECT_EQ(validated(0), 0U);
}

std::vector<std::string> pieces(const std::string& text, std::uint64_t piece_bytes, const std::string& separator = "") {
  std::istringstream in(text);
  std::vector<std::string> found;
  read_plain_text(in, "plain.txt", {.separator = separator, .piece_bytes = piece_bytes},
                  [&](const Document& document) { found.emplace_back(document.text); });
  return found;
}

std::string letters(std::size_t count, char letter = 'a') { return std::string(count, letter); }

TEST(Pieces, TextOfExactlyTheLengthIsOne) {
  EXPECT_EQ(pieces(letters(1024), 1024).size(), 1U);
  EXPECT_EQ(pieces(letters(1025), 1024).size(), 2U);
}

// The second half begins with byte 512 of 1024.
TEST(Pieces, AreCutInTheirSecondHalf) {
  EXPECT_EQ(pieces(letters(512) + " " + letters(1000), 1024).front().size(), 513U);
  EXPECT_EQ(pieces(letters(511) + " " + letters(1000), 1024).front().size(), 1023U) << "the space comes too early";
  EXPECT_EQ(pieces(letters(512) + "\n\n" + letters(1000), 1024).front().size(), 514U);
  EXPECT_EQ(pieces(letters(512) + "\n" + letters(1000), 1024).front().size(), 513U);
}

TEST(Pieces, EndWithAParagraphBeforeALineBeforeAWord) {
  EXPECT_EQ(
      pieces(letters(600) + "\n\n" + letters(100) + "\n" + letters(100) + " " + letters(900), 1024).front().size(),
      602U);
  EXPECT_EQ(pieces(letters(600) + "\n" + letters(100) + " " + letters(900), 1024).front().size(), 601U);
  EXPECT_EQ(pieces(letters(600) + " " + letters(100) + " " + letters(900), 1024).front().size(), 702U);
}

// Four bytes a character: the cut falls between two of them.
TEST(Pieces, DoNotCutACharacter) {
  std::string text = "a";
  for (int i = 0; i < 400; ++i) text += "\xF0\x9F\x8E\xB5";
  const std::string first = pieces(text, 1024).front();
  EXPECT_EQ(first.size(), 1021U);
}

TEST(Pieces, ASeparatorIsFoundUpToTheVeryEnd) {
  EXPECT_EQ(pieces(letters(1024) + "<|>" + letters(3), 1024, "<|>"), (std::vector<std::string>{letters(1024), "aaa"}));
  EXPECT_EQ(pieces("one<|>two<|>", 1024, "<|>"), (std::vector<std::string>{"one", "two"}));
}

}  // namespace
}  // namespace quaver
