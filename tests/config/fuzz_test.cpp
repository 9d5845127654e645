// The fuzz targets' property over their seeds, every truncation of them and every single bit flipped.
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <vector>

#include "fuzz/config_property.h"
#include "support/temporary_folder.h"

namespace quaver {
namespace {

using test::Outcome;

std::vector<std::string> corpus(const std::string& name) {
  std::vector<std::string> seeds;
  const auto folder = std::filesystem::path(__FILE__).parent_path() / "../fuzz/corpus" / name;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    seeds.push_back(test::contents(entry.path()));
  }
  return seeds;
}

struct Counts {
  int loaded = 0;
  int refused = 0;
};

template <class Target>
Counts run_mutations(const std::string& folder, Target target) {
  Counts counts;
  const auto run = [&](const std::string& input) {
    (target(input) == Outcome::loaded ? counts.loaded : counts.refused) += 1;
  };
  for (const std::string& seed : corpus(folder)) {
    for (std::size_t length = 0; length <= seed.size(); ++length) run(seed.substr(0, length));
    for (std::size_t bit = 0; bit < 8 * seed.size(); ++bit) {
      std::string flipped = seed;
      flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
      run(flipped);
    }
  }
  return counts;
}

TEST(ConfigFuzz, TomlLoadsOrIsRefused) {
  const Counts counts = run_mutations("config_toml", test::fuzz_config_toml);
  EXPECT_GT(counts.loaded, 100);
  EXPECT_GT(counts.refused, 1000);
}

TEST(ConfigFuzz, FlagsLoadOrAreRefused) {
  const Counts counts = run_mutations("config_flags", test::fuzz_config_flags);
  EXPECT_GT(counts.loaded, 20);
  EXPECT_GT(counts.refused, 100);
}

std::string repeated(const std::string& unit, int times) {
  std::string text;
  for (int i = 0; i < times; ++i) text += unit;
  return text;
}

// Nesting is what makes recursive parsers run out of stack.
TEST(ConfigFuzz, DeepNestingIsRefused) {
  constexpr int deep = 200'000;
  const std::string deep_key = "precision.layers." + repeated("a.", deep) + "a";
  for (const std::string& text : {
           "precision.layers = " + repeated("[", deep),
           "precision.layers = " + repeated("{a=", deep),
           "precision.layers = [\n" + repeated("{ a.a.a.a.a.a.a.a.a.a.a.a.a.a.a = [\n", 250),
           deep_key + " = 'bf16'",
           "[" + deep_key + "]",
           "run.name = \"\"\"x\"\"\"\"\"\n" + deep_key + " = 'bf16'",
           "run.name = '''x''''\n# it's\n" + deep_key + " = 'bf16'",
           "run.name = \"\\\"\"\n" + deep_key + " = 'bf16'",
           "run.name = 'open\n" + deep_key + " = 'bf16'",
       }) {
    EXPECT_EQ(test::fuzz_config_toml(text), Outcome::refused);
  }
}

TEST(ConfigFuzz, DotsInStringsAndCommentsAreNotNesting) {
  const std::string dots(1000, '.');
  EXPECT_EQ(test::fuzz_config_toml("run.name = '" + dots + "' # " + dots + "\n# " + dots), Outcome::loaded);
  EXPECT_EQ(test::fuzz_config_toml("run.name = \"\\\"" + dots + "\""), Outcome::loaded);
  EXPECT_EQ(test::fuzz_config_toml("run.name = \"\"\"" + dots + "\n\"" + dots + "\"\"\"\""), Outcome::loaded);
}

}  // namespace
}  // namespace quaver
