// Every function, file and link that the documentation names exists: names drift when code is reshaped, and a reader
// who looks one up in vain trusts nothing else.
#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "support/temporary_folder.h"

namespace {

namespace fs = std::filesystem;
using quaver::test::contents;
using Words = std::set<std::string, std::less<>>;

const fs::path& root() {
  static const fs::path folder = QUAVER_SOURCES;
  return folder;
}

bool is_cpp(const fs::path& path) {
  constexpr std::array<std::string_view, 4> endings{".h", ".cpp", ".cu", ".cuh"};
  return std::find(endings.begin(), endings.end(), path.extension().string()) != endings.end();
}

// Words, and `::` as a word of its own. A comment does not count: it outlives what it is about.
std::vector<std::string> words_of(const std::string& text, bool has_cpp_comments) {
  std::vector<std::string> words;
  for (std::size_t i = 0; i < text.size();) {
    const auto is_word = [&](std::size_t at) {
      return at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) != 0 || text[at] == '_');
    };
    if (has_cpp_comments && text.compare(i, 2, "//") == 0) {
      i = std::min(text.find('\n', i), text.size());
    } else if (text.compare(i, 2, "::") == 0) {
      words.emplace_back("::");
      i += 2;
    } else if (is_word(i)) {
      const std::size_t begin = i;
      while (is_word(i)) ++i;
      words.push_back(text.substr(begin, i - begin));
    } else {
      ++i;
    }
  }
  return words;
}

class Sources {
 public:
  Sources() {
    for (const char* folder :
         {"src", "include", "tests", "bench", "scripts", "web/src", "web/test", "cmake", "python", "examples"}) {
      for (const auto& entry : fs::recursive_directory_iterator(root() / folder)) {
        if (entry.is_regular_file() && entry.path().filename() != "names_test.cpp") add(entry.path());
      }
    }
    for (const char* file : {"CMakeLists.txt", "Makefile"}) add(root() / file);
  }

  bool has_word(std::string_view word) const { return words_.contains(word); }
  bool has_file(std::string_view name) const { return files_.contains(name); }

  // Declared as `Type::member`, or named in a file that declares the type.
  bool has_member(const std::string& type, const std::string& member) const {
    if (words_.contains(type + "::" + member)) return true;
    const auto [first, last] = declared_in_.equal_range(type);
    return std::any_of(first, last, [&](const auto& place) { return words_in_.at(place.second).contains(member); });
  }

 private:
  void add(const fs::path& path) {
    files_.insert(path.filename().string());
    const std::vector<std::string> words = words_of(contents(path), is_cpp(path));
    Words& here = words_in_[path.string()];
    for (std::size_t i = 0; i < words.size(); ++i) {
      here.insert(words[i]);
      if (i >= 2 && words[i - 1] == "::") words_.insert(words[i - 2] + "::" + words[i]);
      const bool declares =
          i >= 1 && (words[i - 1] == "class" || words[i - 1] == "struct" || words[i - 1] == "namespace");
      if (declares) declared_in_.emplace(words[i], path.string());
    }
    words_.insert(here.begin(), here.end());
  }

  Words files_;
  Words words_;
  std::map<std::string, Words> words_in_;
  std::multimap<std::string, std::string> declared_in_;
};

const Sources& sources() {
  static const Sources all;
  return all;
}

std::vector<std::smatch> matches(const std::string& text, const std::regex& pattern) {
  return {std::sregex_iterator(text.begin(), text.end(), pattern), std::sregex_iterator()};
}

// As GitHub makes it from a heading.
std::string anchor_of(std::string_view heading) {
  std::string anchor;
  for (const char c : heading) {
    if (c == ' ') anchor += '-';
    if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_' || (c & 0x80) != 0) {
      anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
  }
  return anchor;
}

bool has_anchor(const fs::path& page, const std::string& anchor) {
  std::istringstream lines(contents(page));
  for (std::string line; std::getline(lines, line);) {
    const std::size_t title = line.find_first_not_of('#');
    if (title != 0 && title != std::string::npos && line[title] == ' ' && anchor_of(line.substr(title + 1)) == anchor) {
      return true;
    }
  }
  return false;
}

void check_links(const fs::path& page, const std::string& text, std::vector<std::string>& unknown) {
  static const std::regex link(R"re((?:\]\(|src="|srcset=")([^)\s"]+))re");
  for (const std::smatch& match : matches(text, link)) {
    const std::string target = match[1];
    if (target.find("://") != std::string::npos) continue;
    const std::size_t hash = target.find('#');
    const fs::path file = hash == 0 ? page : page.parent_path() / target.substr(0, hash);
    const bool found = fs::exists(file) && (hash == std::string::npos || has_anchor(file, target.substr(hash + 1)));
    if (!found) unknown.push_back(target);
  }
}

void check_files(const std::string& text, std::vector<std::string>& unknown) {
  static const std::regex path(
      R"re((?:^|[\s`(|])((?:src|include|tests|bench|scripts|web|cmake|examples|docs)/[\w./-]*[\w/]))re");
  for (const std::smatch& match : matches(text, path)) {
    if (!fs::exists(root() / match[1].str())) unknown.push_back(match[1]);
  }
  static const std::regex name(R"re((?:^|[^\w/.-])([\w-]+\.(?:h|cpp|cu|cuh|cmake|ts|tsx|mjs))\b)re");
  static const Words of_cuda{"cuda_fp8.h", "cuda_fp4.h"};
  for (const std::smatch& match : matches(text, name)) {
    if (!sources().has_file(match[1].str()) && !of_cuda.contains(match[1].str())) unknown.push_back(match[1]);
  }
}

// bench/store.cpp becomes the program bench_store.
bool is_benchmark(const std::string& name) {
  constexpr std::string_view prefix = "bench_";
  return name.starts_with(prefix) && fs::exists(root() / "bench" / (name.substr(prefix.size()) + ".cpp"));
}

void check_names(const std::string& text, std::vector<std::string>& unknown) {
  static const std::regex member(R"re(\b([A-Za-z_]\w*)::(\w+))re");
  for (const std::smatch& match : matches(text, member)) {
    if (!sources().has_member(match[1], match[2])) unknown.push_back(match[0]);
  }
  // An underscore or an inner capital makes it a name of code.
  static const std::regex name(R"re(`([A-Za-z]\w*(?:_|[a-z][A-Z])\w*)(?:\([^`]*\))?`)re");
  for (const std::smatch& match : matches(text, name)) {
    if (!sources().has_word(match[1].str()) && !is_benchmark(match[1])) unknown.push_back(match[1]);
  }
  static const std::regex test(R"re(`(\w+Test)\.(\w+)`)re");
  for (const std::smatch& match : matches(text, test)) {
    if (!sources().has_word(match[1].str()) || !sources().has_word(match[2].str())) unknown.push_back(match[0]);
  }
}

// What the text names and nobody finds.
std::vector<std::string> unknown_names(const fs::path& page, const std::string& text) {
  std::vector<std::string> unknown;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    check_links(page, line, unknown);
    check_files(line, unknown);
    check_names(line, unknown);
  }
  return unknown;
}

std::vector<std::string> unknown_in(const std::string& line) { return unknown_names(root() / "docs/page.md", line); }

using testing::ElementsAre;
using testing::IsEmpty;

TEST(DocNamesTest, FindsWhatIsThere) {
  EXPECT_THAT(unknown_in("`ScaleBook::end_step` (`src/precision/scale_book.cpp`) and `make_plan` in `plan.h`"),
              IsEmpty());
  EXPECT_THAT(unknown_in("[the recipes](recipes.md#the-recipes), scripts/layering, (`src/config/`)"), IsEmpty());
  EXPECT_THAT(unknown_in("[elsewhere](https://example.com/nothing.h)"), IsEmpty());
}

TEST(DocNamesTest, MissesWhatIsMadeUp) {
  EXPECT_THAT(unknown_in("`ScaleBook::begin_vacation` and `ScaleShelf::end_step`"),
              ElementsAre("ScaleBook::begin_vacation", "ScaleShelf::end_step"));
  EXPECT_THAT(unknown_in("(`src/precision/scale_shelf.cpp`), `scale_shelf.h`, scripts/shelving"),
              ElementsAre("src/precision/scale_shelf.cpp", "scripts/shelving", "scale_shelf.h"));
  EXPECT_THAT(unknown_in("[no page](shelves.md), [no section](recipes.md#the-shelves), <img src=\"images/shelf.png\">"),
              ElementsAre("shelves.md", "recipes.md#the-shelves", "images/shelf.png"));
  EXPECT_THAT(unknown_in("`make_shelf(book)`, `ShelfSpec`, `FormatTest.HasShelves`"),
              ElementsAre("make_shelf", "ShelfSpec", "`FormatTest.HasShelves`"));
}

// A name that only a comment has is one that somebody forgot there.
TEST(DocNamesTest, CommentsDoNotCount) {
  EXPECT_THAT(words_of("int a;  // of Shelf::size\nint b;", true), ElementsAre("int", "a", "int", "b"));
}

TEST(DocNamesTest, EveryNameInTheDocumentationExists) {
  std::vector<fs::path> pages{root() / "README.md", root() / "CONTRIBUTING.md"};
  for (const auto& entry : fs::directory_iterator(root() / "docs")) {
    if (entry.path().extension() == ".md") pages.push_back(entry.path());
  }
  ASSERT_GE(pages.size(), 8U);
  for (const fs::path& page : pages) EXPECT_THAT(unknown_names(page, contents(page)), IsEmpty()) << page.filename();
}

// It is for someone who decides within a minute; the rest belongs in docs/.
TEST(DocNamesTest, TheReadmeIsShort) {
  const std::string text = contents(root() / "README.md");
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 150);
}

}  // namespace
