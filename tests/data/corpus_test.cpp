// Every file in the fuzzers' corpora, and damaged versions of them, through the same functions.
#include <filesystem>
#include <gtest/gtest.h>
#include <random>

#include "support/temporary_folder.h"

#include "data/fuzz_targets.h"

namespace quaver {
namespace {

using Target = void (*)(std::string_view);

std::vector<std::string> corpus(const std::string& name) {
  const auto folder = std::filesystem::path(__FILE__).parent_path().parent_path() / "fuzz" / "corpus" / name;
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(test::contents(entry.path()));
  }
  EXPECT_GE(files.size(), 3u) << folder;
  return files;
}

void run_corpus(const std::string& name, Target target, int damages) {
  std::mt19937 random(1);
  for (const std::string& file : corpus(name)) {
    EXPECT_NO_THROW(target(file));
    for (int i = 0; i < damages && !file.empty(); ++i) {
      EXPECT_NO_THROW(target(std::string_view(file).substr(0, random() % file.size())));
      std::string damaged = file;
      for (auto flips = 1 + random() % 3; flips > 0; --flips) {
        damaged[random() % damaged.size()] ^= static_cast<char>(1u << random() % 8);
      }
      EXPECT_NO_THROW(target(damaged));
    }
  }
}

TEST(Corpus, Shards) { run_corpus("data_shard", test::fuzz_shard, 100); }
TEST(Corpus, Images) { run_corpus("data_image", test::fuzz_image, 100); }
TEST(Corpus, Tokenizers) { run_corpus("data_tokenizer", test::fuzz_tokenizer, 100); }
TEST(Corpus, Documents) { run_corpus("data_documents", test::fuzz_documents, 100); }
TEST(Corpus, Examples) { run_corpus("data_examples", test::fuzz_examples, 100); }
TEST(Corpus, Datasets) { run_corpus("data_dataset", test::fuzz_dataset, 100); }

}  // namespace
}  // namespace quaver
