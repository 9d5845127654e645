// Where documents begin and end and what is said of them: lines, offsets, kinds of files, what a folder holds.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>

#include "support/temporary_folder.h"

#include "data/documents.h"
#include "data/expect_error.h"
#include "data/unicode.h"
#include "io/utf8.h"

namespace quaver {
namespace {

using test::expect_error;
using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Seen {
  std::string text;
  std::uint64_t line;
  std::uint64_t end_offset;
  bool operator==(const Seen&) const = default;
};
void PrintTo(const Seen& seen, std::ostream* out) {
  *out << '"' << seen.text << "\" line " << seen.line << " to " << seen.end_offset;
}

std::vector<Seen> seen_in_plain(const std::string& text, const TextReading& reading) {
  std::istringstream in(text);
  std::vector<Seen> all;
  read_plain_text(in, "p.txt", reading, [&](const Document& d) {
    EXPECT_EQ(d.source, "p.txt");
    all.push_back({std::string(d.text), d.line, d.end_offset});
  });
  return all;
}

std::vector<Seen> seen_in_lines(const std::string& text, SkippedLines* skipped = nullptr,
                                const TextReading& reading = {}) {
  std::istringstream in(text);
  std::vector<Seen> all;
  const SkippedLines passed_over = read_json_lines(in, "l.jsonl", reading, [&](const Document& d) {
    all.push_back({std::string(d.text), d.line, d.end_offset});
  });
  if (skipped != nullptr) *skipped = passed_over;
  return all;
}

TEST(PlainDocuments, KnowTheirLineAndHowFarTheFileIsRead) {
  TextReading reading;
  reading.separator = "\n--\n";
  EXPECT_THAT(seen_in_plain("a\nb\n--\nc\n--\nd", reading),
              ElementsAre(Seen{"a\nb", 1, 7}, Seen{"c", 4, 12}, Seen{"d", 6, 13}));
  EXPECT_THAT(seen_in_plain("\xEF\xBB\xBF"
                            "a\n--\n",
                            reading),
              ElementsAre(Seen{"a", 1, 8}));
  EXPECT_THAT(seen_in_plain("\n--\n\n--\n", reading), ElementsAre(Seen{"", 1, 4}, Seen{"", 3, 8}));
  EXPECT_THAT(seen_in_plain("", reading), ElementsAre(Seen{"", 1, 0}));
  EXPECT_THAT(seen_in_plain("", {}), ElementsAre(Seen{"", 1, 0}));
  EXPECT_THAT(seen_in_plain("\xEF\xBB\xBF", {}), ElementsAre(Seen{"", 1, 3}));
  EXPECT_THAT(seen_in_plain("\xEF\xBB", {}), ElementsAre(Seen{"\xEF\xBB", 1, 2})) << "half a mark is text";
}

TEST(PlainDocuments, CutOffPiecesGoOnWhereTheLastOneEnded) {
  TextReading reading;
  reading.piece_bytes = 1024;
  std::string text;
  while (text.size() < 3000) text += std::string(99, 'x') + "\n";
  const std::vector<Seen> pieces = seen_in_plain(text, reading);
  ASSERT_EQ(pieces.size(), 3U);
  EXPECT_EQ(pieces[0].end_offset, 1000U);
  EXPECT_EQ(pieces[1].line, 11U);
  EXPECT_EQ(pieces[1].end_offset, 2000U);
  EXPECT_EQ(pieces[2].line, 21U);
  EXPECT_EQ(pieces[2].end_offset, 3000U);
}

TEST(PlainDocuments, PiecesHaveTheirLimits) {
  TextReading reading;
  reading.piece_bytes = 1024;
  EXPECT_EQ(seen_in_plain("a", reading).size(), 1U);
  reading.piece_bytes = 1023;
  expect_error([&] { seen_in_plain("a", reading); }, "pieces of 1023 bytes");
  reading.piece_bytes = (1 << 30) + 1;
  expect_error([&] { seen_in_plain("a", reading); }, "pieces of 1073741825 bytes");
}

TEST(LineDocuments, KnowTheirLineAndHowFarTheFileIsRead) {
  const std::string text = "{\"text\":\"a\"}\r\n\r\n \t\n{\"text\":\"b\"}\n\n{\"text\":\"c\"}";
  EXPECT_THAT(seen_in_lines(text), ElementsAre(Seen{"a", 1, 14}, Seen{"b", 4, 32}, Seen{"c", 6, 45}));
  EXPECT_THAT(seen_in_lines("\xEF\xBB\xBF{\"text\":\"a\"}\n"), ElementsAre(Seen{"a", 1, 16}));
  EXPECT_THAT(seen_in_lines(""), ElementsAre());
  EXPECT_THAT(seen_in_lines("\n\n"), ElementsAre());
}

TEST(LineDocuments, OfManyBlocksAreRead) {
  const std::string longest(3 << 18, 'x');
  const std::vector<Seen> seen = seen_in_lines("{\"text\":\"a\"}\n{\"text\":\"" + longest + "\"}\n{\"text\":\"b\"}\n");
  ASSERT_EQ(seen.size(), 3U);
  EXPECT_EQ(seen[1].text, longest);
  EXPECT_EQ(seen[2].text, "b");
  EXPECT_EQ(seen[2].line, 3U);
}

TEST(LineDocuments, BadLinesAreCountedAndTheFirstIsNamed) {
  TextReading reading;
  reading.malformed = MalformedLine::skip;
  SkippedLines skipped;
  const auto seen =
      seen_in_lines("{\"text\":\"a\"}\n\nbad\n[1]\n{\"other\":1}\n{\"text\":2}\n{\"text\":\"b\"}\n", &skipped, reading);
  EXPECT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[1].line, 7U);
  EXPECT_EQ(skipped.count, 4U);
  EXPECT_EQ(skipped.first, 3U);
  seen_in_lines("{\"text\":\"a\"}\n", &skipped, reading);
  EXPECT_EQ(skipped.count, 0U);
  EXPECT_EQ(skipped.first, 0U);
  for (const char* bad : {"bad", "[1]", "{\"other\":1}", "{\"text\":2}"}) {
    expect_error([&] { seen_in_lines(std::string(bad) + "\n"); }, "l.jsonl:1: ");
    expect_error([&] { seen_in_lines("{\"text\":\"a\"}\n" + std::string(bad)); }, "l.jsonl:2: ");
  }
}

TEST(LineDocuments, AnErrorListsSomeOfTheFields) {
  expect_error([] { seen_in_lines("{}"); }, "no field \"text\"; it has none");
  expect_error([] { seen_in_lines(R"({"a":1,"b":2})"); }, "no field \"text\"; it has a, b");
  expect_error([] { seen_in_lines(R"({"text":1})"); }, "field \"text\" is not a string");
  std::string many = "{";
  for (int i = 10; i < 90; ++i) many += "\"field_" + std::to_string(i) + "\":1,";
  many.back() = '}';
  try {
    seen_in_lines(many);
    ADD_FAILURE();
  } catch (const Error& error) {
    // Ten bytes each with ", " but for the first: more than 200 with the twenty-first.
    EXPECT_THAT(error.what(), HasSubstr("field_30, …"));
    EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("field_31")));
  }
}

TEST(FilesOfText, AreJsonLinesByTheirName) {
  const TemporaryFolder folder;
  const std::string line = "{\"text\":\"a\"}\n";
  const auto text_in = [&](const char* name) {
    std::string text;
    read_documents(folder.write(name, line), {}, [&](const Document& d) { text += d.text; });
    return text;
  };
  EXPECT_EQ(text_in("a.jsonl"), "a");
  EXPECT_EQ(text_in("a.ndjson"), "a");
  EXPECT_EQ(text_in("a.json"), line);
  EXPECT_EQ(text_in("a.txt"), line);
  EXPECT_EQ(text_in("jsonl"), line);
  TextReading reading;
  reading.malformed = MalformedLine::skip;
  EXPECT_EQ(read_documents(folder.write("b.jsonl", "bad\n"), reading, [](const Document&) {}).count, 1U);
  expect_error([&] { read_documents(folder / "none.txt", {}, [](const Document&) {}); }, "cannot open ");
  std::filesystem::create_directory(folder / "folder.txt");
  expect_error([&] { read_documents(folder / "folder.txt", {}, [](const Document&) {}); }, "is not a regular file");
}

TEST(FilesOfText, ThatChangeMeanwhileAreAnErrorEvenAtTheSameSize) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder.write("a.txt", "text");
  EXPECT_NO_THROW(read_documents(path, {}, [](const Document&) {}));
  const auto touch = [&](const Document&) {
    std::filesystem::last_write_time(path, std::filesystem::last_write_time(path) + std::chrono::seconds(5));
  };
  expect_error([&] { read_documents(path, {}, touch); }, "changed while it was being read: it had 4 bytes, now 4");
  const auto grow = [&](const Document&) { std::ofstream(path, std::ios::app) << "!"; };
  expect_error([&] { read_documents(path, {}, grow); }, "changed while it was being read: it had 4 bytes, now 5");
}

TEST(InputFiles, HaveTheirSizesAndWhatIsPassedOverIsToldOfEveryFolder) {
  const TemporaryFolder folder;
  folder.write("a/one.txt", "12345");
  folder.write("a/two.txt", "");
  folder.write("b/three.txt", "123");
  for (const char* name : {"a", "b"}) {
    std::filesystem::create_symlink("/no/such/file", folder / name / "z");
    std::filesystem::create_symlink("/no/such/file", folder / name / "y");
    std::filesystem::create_directory_symlink(folder / "a", folder / name / "to-folder");
  }
  std::filesystem::create_symlink("self", folder / "b/self");
  const Inputs inputs = list_inputs(
      {.inputs = {folder / "b", folder / "a", folder / "a/one.txt"}, .include = {}, .exclude = {}, .never = {}});
  std::vector<std::uint64_t> sizes;
  for (const InputFile& file : inputs.files) sizes.push_back(file.bytes);
  EXPECT_THAT(sizes, ElementsAre(3, 5, 0, 5));
  EXPECT_EQ(inputs.files[0].path, folder / "b/three.txt");
  EXPECT_EQ(inputs.files[3].path, folder / "a/one.txt");
  const auto first = [&](const char* count_and_kind, const char* name) {
    return std::string("passed over: ") + count_and_kind + ", the first " + (folder / name).string();
  };
  EXPECT_THAT(inputs.notes, ElementsAre(first("1 links that lead back to themselves", "b/self"),
                                        first("2 links that lead to no file", "b/y"),
                                        first("1 links to folders, which are not followed", "b/to-folder"),
                                        first("2 links that lead to no file", "a/y"),
                                        first("1 links to folders, which are not followed", "a/to-folder")));
}

TEST(InputFiles, AreTakenByIncludeAndLeftOutByExclude) {
  const TemporaryFolder folder;
  for (const char* name : {"a.txt", "a.md", "sub/b.txt", "sub/c.md", ".hidden/d.txt", "out/e.txt"}) {
    folder.write(name, "x");
  }
  const auto names = [&](std::vector<std::string> include, std::vector<std::string> exclude, const char* never) {
    std::vector<std::string> result;
    const std::filesystem::path output = *never == 0 ? std::filesystem::path() : folder / never;
    for (const InputFile& file : list_inputs({{folder.path()}, include, exclude, output}).files) {
      result.push_back(file.path.lexically_relative(folder.path()).string());
    }
    return result;
  };
  EXPECT_THAT(names({}, {}, ""), ElementsAre("a.md", "a.txt", "out/e.txt", "sub/b.txt", "sub/c.md"));
  EXPECT_THAT(names({}, {}, "out"), ElementsAre("a.md", "a.txt", "sub/b.txt", "sub/c.md"));
  EXPECT_THAT(names({"*.txt"}, {}, "out"), ElementsAre("a.txt", "sub/b.txt"));
  EXPECT_THAT(names({"*.txt", "sub/*"}, {"b.*"}, "out"), ElementsAre("a.txt", "sub/c.md"));
  EXPECT_THAT(names({}, {"sub/**"}, "out"), ElementsAre("a.md", "a.txt"));
  expect_error([&] { names({"*.csv"}, {}, ""); }, "is taken by the include and exclude patterns");
  expect_error([&] { list_inputs({}); }, "no input text");
  expect_error([&] { list_inputs({{folder / "none"}, {}, {}, {}}); }, "no text at ");
}

TEST(GlobOfFolders, MayMatchNone) {
  EXPECT_TRUE(matches_glob("docs**/a.md", "docs/a.md"));
  EXPECT_TRUE(matches_glob("docs**/a.md", "docs/old/a.md"));
  EXPECT_TRUE(matches_glob("docs**/a.md", "docsa.md")) << "no folder, and so no slash";
  EXPECT_FALSE(matches_glob("docs**/a.md", "docs/ba.md"));
}

TEST(WhiteSpace, IsThatOfUnicode) {
  std::vector<std::uint32_t> spaces;
  for (std::uint32_t c = 0; c < 0x4000; ++c) {
    if (char_class(c) == CharClass::space) spaces.push_back(c);
  }
  EXPECT_THAT(spaces,
              ElementsAre(0x9, 0xA, 0xB, 0xC, 0xD, 0x20, 0x85, 0xA0, 0x1680, 0x2000, 0x2001, 0x2002, 0x2003, 0x2004,
                          0x2005, 0x2006, 0x2007, 0x2008, 0x2009, 0x200A, 0x2028, 0x2029, 0x202F, 0x205F, 0x3000));
}

TEST(Utf8, ShortestFormsAreTheOnlyOnes) {
  const auto is_valid = [](std::string_view text) { return find_invalid_utf8(text) == std::string_view::npos; };
  for (const char* text : {"\x7F", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xEF\xBF\xBF", "\xF0\x90\x80\x80",
                           "\xF4\x8F\xBF\xBF", "\xED\x9F\xBF", "\xEE\x80\x80"}) {
    EXPECT_TRUE(is_valid(text)) << ::testing::PrintToString(std::string(text));
  }
  for (const char* text :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xE0\x9F\xBF", "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80",
        "\xED\xA0\x80", "\xED\xBF\xBF", "\xC2", "\xE0\xA0", "\xF0\x90\x80", "\xC2\x41", "\xFF"}) {
    EXPECT_FALSE(is_valid(text)) << ::testing::PrintToString(std::string(text));
  }
  EXPECT_EQ(find_invalid_utf8("aé\xFF"), 3U);
}

}  // namespace
}  // namespace quaver
