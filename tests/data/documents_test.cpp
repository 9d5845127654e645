#include "data/documents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sstream>
#include <sys/stat.h>

#include "support/temporary_folder.h"

#include "data/expect_error.h"
#include "data/sample_text.h"
#include "io/utf8.h"

namespace quaver {
namespace {

using test::expect_error;
using test::TemporaryFolder;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

std::vector<std::string> plain_documents(const std::string& text, const TextReading& reading = {}) {
  std::istringstream in(text);
  std::vector<std::string> documents;
  read_plain_text(in, "plain.txt", reading, [&](const Document& d) { documents.emplace_back(d.text); });
  return documents;
}

std::vector<std::string> json_documents(const std::string& text, const TextReading& reading = {}) {
  std::istringstream in(text);
  std::vector<std::string> documents;
  read_json_lines(in, "lines.jsonl", reading, [&](const Document& d) { documents.emplace_back(d.text); });
  return documents;
}

TEST(Glob, MatchesAsInAShell) {
  EXPECT_TRUE(matches_glob("*.txt", "a.txt"));
  EXPECT_TRUE(matches_glob("*.txt", "deep/down/a.txt")) << "without a slash, the name alone counts";
  EXPECT_FALSE(matches_glob("*.txt", "a.txt.gz"));
  EXPECT_TRUE(matches_glob("docs/*.md", "docs/a.md"));
  EXPECT_FALSE(matches_glob("docs/*.md", "docs/old/a.md"));
  EXPECT_TRUE(matches_glob("docs/**/*.md", "docs/a.md"));
  EXPECT_TRUE(matches_glob("docs/**/*.md", "docs/old/older/a.md"));
  EXPECT_FALSE(matches_glob("docs/**/a.md", "docs/old/ba.md"));
  EXPECT_TRUE(matches_glob("**/x/*", "a/b/x/c"));
  EXPECT_TRUE(matches_glob("old/**", "old/a/b"));
  EXPECT_TRUE(matches_glob("?.c", "a.c"));
  EXPECT_FALSE(matches_glob("?.c", "ab.c"));
  EXPECT_TRUE(matches_glob("a*b*c", "aXbYbZc"));
  EXPECT_FALSE(matches_glob("", "a"));
  EXPECT_FALSE(matches_glob(std::string(60, '*') + "b", std::string(5000, 'a'))) << "and in reasonable time";
}

TEST(Inputs, AreListedInAFixedOrder) {
  const TemporaryFolder folder;
  for (const char* name : {"b.txt", "a/z.txt", "a/c.md", ".git/config", "a/.hidden", "out/train-00000.qv"}) {
    folder.write(name, "text");
  }
  const auto names = [&](const InputSelection& selection) {
    std::vector<std::string> result;
    for (const InputFile& file : list_inputs(selection).files) {
      result.push_back(file.path.lexically_relative(folder.path()).generic_string());
    }
    return result;
  };
  EXPECT_THAT(names({{folder.path()}, {}, {}, folder / "out"}), ElementsAre("a/c.md", "a/z.txt", "b.txt"));
  EXPECT_THAT(names({{folder.path()}, {"*.txt"}, {"a/*"}, {}}), ElementsAre("b.txt"));
  EXPECT_THAT(names({{folder / "b.txt", folder / "a"}, {}, {}, {}}), ElementsAre("b.txt", "a/c.md", "a/z.txt"));
  expect_error([&] { names({{folder.path()}, {"*.rst"}, {}, {}}); }, folder.path().string());
  expect_error([&] { names({{folder / "none"}, {}, {}, {}}); }, "none");
  expect_error([&] { names({}); }, "no input");
}

TEST(Inputs, LinksThatLeadNowhereArePassedOverAndNamed) {
  const TemporaryFolder folder;
  folder.write("a/text.txt", "text");
  std::filesystem::create_symlink("loop", folder / "a/loop");
  std::filesystem::create_symlink("round", folder / "a/trip");
  std::filesystem::create_symlink("trip", folder / "a/round");
  std::filesystem::create_directory_symlink(folder.path(), folder / "a/up");
  std::filesystem::create_symlink("gone", folder / "a/dangling");
  ASSERT_EQ(mkfifo((folder / "a/pipe").c_str(), 0600), 0);
  const Inputs inputs = list_inputs({{folder.path()}, {}, {}, {}});
  ASSERT_EQ(inputs.files.size(), 1U);
  EXPECT_EQ(inputs.files[0].path, folder / "a/text.txt");
  const std::string a = (folder / "a/").string();
  EXPECT_THAT(inputs.notes, UnorderedElementsAre(
                                "passed over: 3 links that lead back to themselves, the first " + a + "loop",
                                "passed over: 1 links to folders, which are not followed, the first " + a + "up",
                                "passed over: 1 links that lead to no file, the first " + a + "dangling",
                                "passed over: 1 that are no files (pipes, sockets, devices), the first " + a + "pipe"));
}

TEST(PlainText, ShortFilesAreOneDocument) {
  EXPECT_THAT(plain_documents("one\n\ntwo\n"), ElementsAre("one\n\ntwo\n"));
  EXPECT_THAT(plain_documents("\xEF\xBB\xBFmarked"), ElementsAre("marked"));
  EXPECT_THAT(plain_documents(""), ElementsAre(""));
}

TEST(PlainText, SeparatorsCutDocuments) {
  TextReading reading;
  reading.separator = "<|end|>";
  EXPECT_THAT(plain_documents("one<|end|>two<|end|>", reading), ElementsAre("one", "two"));
  EXPECT_THAT(plain_documents("one<|end|><|end|>two<|en", reading), ElementsAre("one", "", "two<|en"));
  // Wherever the separator falls with respect to the blocks that are read.
  for (std::size_t length : {(1u << 20) - 3, (1u << 20) - 7, 1u << 20, (1u << 20) + 1}) {
    reading.piece_bytes = 4 << 20;
    const std::string text(length, 'x');
    EXPECT_THAT(plain_documents(text + "<|end|>two", reading), ElementsAre(text, "two"));
  }
}

TEST(PlainText, LongTextIsCutWhereItReadsBest) {
  TextReading reading;
  reading.piece_bytes = 1024;
  const std::string paragraph = std::string(700, 'a') + "\n\n";
  EXPECT_THAT(plain_documents(paragraph + paragraph, reading), ElementsAre(paragraph, paragraph));
  const std::string line = std::string(700, 'b') + "\n";
  EXPECT_THAT(plain_documents(line + line, reading), ElementsAre(line, line));
}

TEST(PlainText, NothingIsLostAndNoCharacterIsCut) {
  TextReading reading;
  reading.piece_bytes = 1024;
  std::string wide;
  for (std::uint32_t i = 0; i < 5000; ++i) append_utf8(0x1F600 + i % 64, wide);
  for (const std::string& text : {wide, test::random_text(20000, 1), test::random_bytes(20000, 2)}) {
    std::string joined;
    for (const std::string& document : plain_documents(text, reading)) {
      EXPECT_LE(document.size(), reading.piece_bytes);
      joined += document;
    }
    EXPECT_EQ(joined, text);
  }
  for (const std::string& document : plain_documents(wide, reading)) {
    EXPECT_EQ(find_invalid_utf8(document), std::string_view::npos);
  }
}

TEST(PlainText, RefusesPiecesOfNoUse) {
  TextReading reading;
  reading.piece_bytes = 10;
  expect_error([&] { plain_documents("text", reading); }, "10 bytes");
}

TEST(JsonLines, TextFieldsAreDocuments) {
  EXPECT_THAT(json_documents("{\"text\": \"one\\nline\", \"id\": 1}\r\n\n  \n{\"text\":\"\\u00e9\"}"),
              ElementsAre("one\nline", "é"));
  TextReading reading;
  reading.text_field = "body";
  EXPECT_THAT(json_documents("{\"body\":\"x\",\"text\":\"y\"}\n", reading), ElementsAre("x"));
  EXPECT_THAT(json_documents(""), ElementsAre());
  const std::string big(3 << 20, 'x');
  EXPECT_THAT(json_documents("{\"text\":\"" + big + "\"}\n{\"text\":\"b\"}\n"), ElementsAre(big, "b"));
}

TEST(JsonLines, ErrorsNameTheLine) {
  const std::string good = "{\"text\":\"ok\"}\n";
  expect_error([&] { json_documents(good + "\n" + good + "{\"text\": \n" + good); }, "lines.jsonl:4");
  expect_error([&] { json_documents(good + "{\"title\":\"a\",\"url\":\"b\"}"); },
               "lines.jsonl:2: no field \"text\"; it has title, url");
  expect_error([&] { json_documents(good + "{\"text\": 7}"); }, "lines.jsonl:2");
  expect_error([&] { json_documents("[1]\n"); }, "lines.jsonl:1");
  expect_error([&] { json_documents("{\"text\":\"\xFF\"}\n"); }, "lines.jsonl:1");

  TextReading reading;
  reading.malformed = MalformedLine::skip;
  EXPECT_THAT(json_documents(good + "nonsense\n" + good, reading), ElementsAre("ok", "ok"));
  std::istringstream lines(good + "nonsense\n" + good + "[]\n{\"title\":\"a\"}\n" + good);
  const SkippedLines skipped = read_json_lines(lines, "lines.jsonl", reading, [](const Document&) {});
  EXPECT_EQ(skipped.count, 3U);
  EXPECT_EQ(skipped.first, 2U);
}

}  // namespace
}  // namespace quaver
