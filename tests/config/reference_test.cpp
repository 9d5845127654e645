#include "config/reference.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <iterator>
#include <sstream>

#include "support/temporary_folder.h"

#include "config/presets.h"
#include "config/schema.h"
#include "config/support.h"

namespace quaver {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(Reference, DocsAreWhatTheSchemaSays) {
  const auto path = std::filesystem::path(__FILE__).parent_path() / "../../docs/config.md";
  EXPECT_TRUE(test::contents(path) == config_reference())
      << "docs/config.md is out of date; regenerate it: quaver inspect config > docs/config.md";
}

TEST(Reference, CoversEveryKeyAndPreset) {
  const std::string reference = config_reference(), help = config_help();
  for (const Key& key : schema()) {
    EXPECT_THAT(reference, HasSubstr(key.section().empty() ? "## " + key.name : "| `" + key.name + "` |"));
    EXPECT_THAT(help, AllOf(HasSubstr("  " + key.name + "\n"), HasSubstr(key.doc)));
  }
  for (const std::string& name : preset_names()) EXPECT_THAT(reference, HasSubstr("| `" + name + "` |"));
}

// A table row with a stray | has one cell too many.
TEST(Reference, RowsOfATableHaveTheSameNumberOfCells) {
  std::istringstream lines(config_reference());
  std::ptrdiff_t cells = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("|")) {
      cells = 0;
      continue;
    }
    const auto bars = std::ranges::count(line, '|');
    EXPECT_EQ(bars, cells == 0 ? bars : cells) << line;
    cells = bars;
  }
}

TEST(Help, CanBeOfOneSection) {
  EXPECT_THAT(config_help("guard"), AllOf(HasSubstr("guard.patience"), Not(HasSubstr("model."))));
  EXPECT_THAT(test::refusal([] { config_help("gaurd"); }), HasSubstr("did you mean \"guard\"?"));
}

}  // namespace
}  // namespace quaver
