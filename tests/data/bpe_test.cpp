#include "data/bpe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <thread>

#include "data/expect_error.h"
#include "data/sample_text.h"
#include "io/utf8.h"

namespace quaver {
namespace {

using Ids = std::vector<std::int32_t>;
using test::expect_error;

// Recounts everything for every merge: slow, and plainly right.
std::vector<std::string> merges_by_recounting(const std::string& text, int count) {
  std::map<std::string, int> words;
  for_each_piece(SplitPattern::gpt2, text, [&](std::string_view piece) { ++words[std::string(piece)]; });
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.emplace_back(1, static_cast<char>(byte));
  std::vector<std::pair<Ids, int>> split;
  for (const auto& [word, times] : words) {
    Ids ids;
    for (const char c : word) ids.push_back(static_cast<unsigned char>(c));
    split.emplace_back(ids, times);
  }
  for (int merge = 0; merge < count; ++merge) {
    std::map<std::pair<int, int>, int> pairs;
    for (const auto& [ids, times] : split) {
      for (std::size_t i = 0; i + 1 < ids.size(); ++i) pairs[{ids[i], ids[i + 1]}] += times;
    }
    std::pair<std::pair<int, int>, int> best{{0, 0}, 1};
    for (const auto& pair : pairs) {
      if (pair.second > best.second) best = pair;  // in order of ids: the first of equals stays
    }
    if (best.second < 2) break;
    const auto [left, right] = best.first;
    tokens.push_back(tokens[static_cast<std::size_t>(left)] + tokens[static_cast<std::size_t>(right)]);
    for (auto& [ids, times] : split) {
      Ids merged;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const bool match = i + 1 < ids.size() && ids[i] == left && ids[i + 1] == right;
        merged.push_back(match ? static_cast<std::int32_t>(tokens.size() - 1) : ids[i]);
        if (match) ++i;
      }
      ids = merged;
    }
  }
  return {tokens.begin() + 256, tokens.end()};
}

// Looks for the most urgent merge again and again.
Ids encode_by_searching(const BpeTokenizer& tokenizer, std::string_view text) {
  const BpeDefinition& definition = tokenizer.definition();
  Ids result;
  for_each_piece(definition.splits, text, [&](std::string_view piece) {
    Ids ids;
    for (const char c : piece) ids.push_back(static_cast<unsigned char>(c));  // trained ids: a byte is its own id
    for (const BpeMerge& merge : definition.merges) {
      Ids merged;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const bool match = i + 1 < ids.size() && ids[i] == merge.left && ids[i + 1] == merge.right;
        merged.push_back(match ? merge.result : ids[i]);
        if (match) ++i;
      }
      ids = merged;
    }
    result.insert(result.end(), ids.begin(), ids.end());
  });
  return result;
}

TEST(ByteTokenizer, IdsAreTheBytes) {
  const auto tokenizer = make_byte_tokenizer();
  EXPECT_EQ(tokenizer->encode("A\xFF\n"), (Ids{65, 255, 10}));
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->end_of_text(), 256);
  EXPECT_EQ(tokenizer->decode(Ids{72, 105, 256}), "Hi<|endoftext|>");
  const std::string bytes = test::random_bytes(10000, 1);
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(bytes)), bytes);
  expect_error([&] { tokenizer->decode(Ids{257}); }, "257");
  expect_error([&] { tokenizer->decode(Ids{-1}); }, "-1");
}

TEST(Bpe, LearnsTheMergesOfAHandCheckedExample) {
  // Pieces: "low", " low" twice, " lower" twice, " new" three times. l+o and o+w occur 5 times, l has the smaller id;
  // then lo+w 5, " "+low 4. Of " "+n, n+e and e+w with 3 each, the space has the smallest id; e+w goes before " n"+e
  // for the same reason, and " n"+ew is left.
  const auto tokenizer = train_bpe(std::vector<std::string>{"low low low lower lower new new new"}, 256 + 6 + 1);
  const std::vector<std::string>& tokens = tokenizer->definition().tokens;
  EXPECT_THAT(std::vector<std::string>(tokens.begin() + 256, tokens.end()),
              ::testing::ElementsAre("lo", "low", " low", " n", "ew", " new", "<|endoftext|>"));
  EXPECT_EQ(tokenizer->encode(" lower new"), (Ids{258, 'e', 'r', 261}));
}

TEST(Bpe, TrainingAgreesWithRecounting) {
  for (std::uint32_t seed = 0; seed < 4; ++seed) {
    const std::string text = test::random_text(400, seed);
    const auto tokenizer = train_bpe(std::vector<std::string>{text}, 257 + 60);
    const std::vector<std::string>& tokens = tokenizer->definition().tokens;
    EXPECT_EQ(std::vector<std::string>(tokens.begin() + 256, tokens.end() - 1), merges_by_recounting(text, 60));
  }
}

TEST(Bpe, StopsWhereNoPairOccursTwice) {
  const auto tokenizer = train_bpe(std::vector<std::string>{"ab ab cd"}, 1000);
  EXPECT_EQ(tokenizer->vocab_size(), 258);  // "ab" is all there is to learn: " ab" occurs once
  EXPECT_EQ(train_bpe({}, 300)->vocab_size(), 257);
  expect_error([] { train_bpe({}, 256); }, "256");
}

TEST(Bpe, EncodingAgreesWithSearching) {
  const auto tokenizer = train_bpe(std::vector<std::string>{test::random_text(2000, 7)}, 400);
  for (std::uint32_t seed = 10; seed < 15; ++seed) {
    const std::string text = replace_invalid_utf8(test::random_text(300, seed));
    EXPECT_EQ(tokenizer->encode(text), encode_by_searching(*tokenizer, text));
    EXPECT_EQ(tokenizer->encode(text), tokenizer->encode(text)) << "with the pieces cached";
  }
}

TEST(Bpe, AnyTextComesBackAndOtherBytesAreReplaced) {
  const auto tokenizer = train_bpe(std::vector<std::string>{test::random_text(2000, 7)}, 500);
  for (std::uint32_t seed = 0; seed < 10; ++seed) {
    for (const std::string& text : {test::random_bytes(3000, seed), test::random_text(500, seed)}) {
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), replace_invalid_utf8(text));
    }
  }
  EXPECT_EQ(tokenizer->encode(""), Ids{});
  const std::string name = "a<|endoftext|>b";
  const Ids ids = tokenizer->encode(name);
  EXPECT_EQ(tokenizer->decode(ids), name);
  EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer->end_of_text()), 0) << "text must not forge special tokens";
}

TEST(Bpe, LongTextWithoutASpaceIsNotQuadratic) {
  const auto tokenizer = train_bpe(std::vector<std::string>{"aaaa aaaa aaaa"}, 260);
  const std::string text(1 << 19, 'a');
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST(Bpe, ThreadsMayShareATokenizer) {
  const auto tokenizer = train_bpe(std::vector<std::string>{test::random_text(2000, 7)}, 400);
  const std::string text = test::random_text(3000, 8);
  const Ids expected = tokenizer->encode(text);
  std::vector<Ids> results(4);
  std::vector<std::thread> threads;
  for (Ids& result : results) threads.emplace_back([&] { result = tokenizer->encode(text); });
  for (std::thread& thread : threads) thread.join();
  for (const Ids& result : results) EXPECT_EQ(result, expected);
}

TEST(Bpe, HashTellsTokenizersApart) {
  const std::vector<std::string> text{test::random_text(2000, 7)};
  EXPECT_EQ(train_bpe(text, 400)->hash(), train_bpe(text, 400)->hash());
  EXPECT_NE(train_bpe(text, 400)->hash(), train_bpe(text, 401)->hash());
  EXPECT_NE(train_bpe(text, 400)->hash(),
            train_bpe(std::vector<std::string>{text[0] + " zzzz zzzz zzzz"}, 400)->hash());
  EXPECT_NE(make_byte_tokenizer()->hash(), train_bpe({}, 257)->hash());
}

}  // namespace
}  // namespace quaver
