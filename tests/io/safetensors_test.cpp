#include "io/safetensors.h"

#include <cstring>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <random>
#include <unistd.h>

#include "support/temporary_folder.h"

#include "io/support.h"

namespace quaver {
namespace {

namespace fs = std::filesystem;
using test::bytes_of;
using testing::HasSubstr;

// A file as the format's description says: length, header, data.
std::string file_of(std::string_view header, std::string_view data) {
  std::string file(8, '\0');
  const std::uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  return file.append(header).append(data);
}

constexpr const char* fetch_it_again = "the file is damaged or not safetensors: copy or export it again";

std::string why_refused_saying(const std::string& remedy, const std::string& file) {
  try {
    parse_safetensors(bytes_of(file), "test.safetensors");
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("test.safetensors"));
    EXPECT_EQ(error.remedy(), remedy);
    return error.what();
  }
  return "accepted";
}

std::string why_refused(const std::string& file) { return why_refused_saying(fetch_it_again, file); }

std::string why_refused(std::string_view header, std::string_view data) { return why_refused(file_of(header, data)); }

// Touches everything a reader would, so that a sanitizer sees a span that leaves the file.
std::size_t read_everything(std::span<const std::byte> file) {
  std::size_t sum = 0;
  try {
    for (const TensorEntry& tensor : parse_safetensors(file, "input").tensors) {
      for (const std::byte byte : tensor.data) sum += std::to_integer<std::size_t>(byte);
    }
  } catch (const Error&) {
  }
  return sum;
}

using Safetensors = test::InAFolder;

TEST_F(Safetensors, EveryTypeComesBackAsItWasWritten) {
  struct Case {
    const char* dtype;
    std::size_t bytes;
  };
  std::mt19937 random(3);
  std::vector<std::vector<std::byte>> buffers;
  std::vector<TensorEntry> tensors;
  for (const Case& c : {Case{"F32", 4},
                        {"F16", 2},
                        {"BF16", 2},
                        {"F8_E4M3", 1},
                        {"F8_E5M2", 1},
                        {"F8_E8M0", 1},
                        {"U8", 1},
                        {"I32", 4},
                        {"I64", 8},
                        {"U32", 4},
                        {"U64", 8},
                        {"F64", 8},
                        {"BOOL", 1}}) {
    auto& buffer = buffers.emplace_back(3 * 5 * c.bytes);
    for (auto& byte : buffer) byte = static_cast<std::byte>(random());
    tensors.push_back({std::string("t.") + c.dtype, c.dtype, {3, 5}, buffer});
  }
  tensors.push_back({"scalar", "F32", {}, std::span(buffers[0]).first(4)});
  tensors.push_back({"empty", "BF16", {0, 7}, {}});
  const FileDigest digest = write_safetensors(folder_ / "a.safetensors", tensors, {{"run", "gpt \"x\""}});

  const SafetensorsFile opened = SafetensorsFile::open(folder_ / "a.safetensors");
  const SafetensorsFile file = SafetensorsFile(SafetensorsFile::open(folder_ / "a.safetensors"));
  EXPECT_EQ(digest.size, fs::file_size(folder_ / "a.safetensors"));
  EXPECT_EQ(digest.crc32c, crc32c(MappedFile::open(folder_ / "a.safetensors").bytes()));
  EXPECT_EQ(file.metadata(), (Metadata{{"format", "pt"}, {"run", "gpt \"x\""}}));
  ASSERT_EQ(file.tensors().size(), tensors.size());
  for (const TensorEntry& expected : tensors) {
    const TensorEntry& found = file.at(expected.name);
    EXPECT_EQ(found.dtype, expected.dtype);
    EXPECT_EQ(found.shape, expected.shape);
    EXPECT_TRUE(std::equal(found.data.begin(), found.data.end(), expected.data.begin(), expected.data.end()));
    const std::size_t element = *safetensors_element_bytes(found.dtype);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(found.data.data()) % element, 0U) << found.name;
  }
  EXPECT_EQ(file.find("t.F3"), nullptr);
  EXPECT_THROW(file.at("t.F3"), Error);
}

TEST_F(Safetensors, TheHeaderIsPaddedToEightBytesWithSpaces) {
  const std::string data(4, 'x');
  for (const char* name : {"a", "ab", "abc", "abcd", "abcde", "abcdef", "abcdefg", "abcdefgh"}) {
    const TensorEntry tensor{name, "F32", {1}, bytes_of(data)};
    write_safetensors(folder_ / "a.safetensors", std::span(&tensor, 1));
    const MappedFile file = MappedFile::open(folder_ / "a.safetensors");
    std::uint64_t length = 0;
    std::memcpy(&length, file.bytes().data(), 8);
    EXPECT_EQ(length % 8, 0U);
    EXPECT_EQ(file.bytes().size(), 8 + length + 4);
    EXPECT_EQ(file.text()[8], '{');
    EXPECT_EQ(SafetensorsFile::open(folder_ / "a.safetensors").at(name).data.size(), 4U);
  }
}

TEST_F(Safetensors, WhatCannotBeWrittenIsRefusedAndLeavesNoFile) {
  const std::string data(8, 'x');
  const auto write = [&](std::vector<TensorEntry> tensors, const Metadata& metadata = {}) {
    write_safetensors(folder_ / "a.safetensors", tensors, metadata);
  };
  EXPECT_THROW(write({{"a", "F31", {2}, bytes_of(data)}}), Error);
  EXPECT_THROW(write({{"a", "F32", {3}, bytes_of(data)}}), Error);
  EXPECT_THROW(write({{"a", "F32", {-2}, bytes_of(data)}}), Error);
  EXPECT_THROW(write({{"a", "F32", {2}, bytes_of(data)}, {"a", "F32", {2}, bytes_of(data)}}), Error);
  EXPECT_THROW(write({{"__metadata__", "F32", {2}, bytes_of(data)}}), Error);
  EXPECT_THROW(write({{"\xFF", "F32", {2}, bytes_of(data)}}), Error);
  EXPECT_THROW(write({}, {{"k", "\xC0"}}), Error);
  EXPECT_TRUE(fs::is_empty(folder_));
}

TEST(SafetensorsReader, AcceptsAFileWrittenByHand) {
  const std::string file = file_of(
      R"({"b":{"data_offsets":[4,8],"shape":[2],"dtype":"F16"},"a":{"dtype":"F32","shape":[],"data_offsets":[0,4]}}  )",
      "aaaabbbb");
  const SafetensorsContent content = parse_safetensors(bytes_of(file), "x");
  ASSERT_EQ(content.tensors.size(), 2U);
  EXPECT_EQ(content.tensors[0].name, "a");
  EXPECT_EQ(content.tensors[1].name, "b");
  EXPECT_EQ(std::to_integer<char>(content.tensors[1].data[0]), 'b');
}

TEST(SafetensorsReader, RefusesABadFrame) {
  EXPECT_THAT(why_refused(std::string("abc")), HasSubstr("too few"));
  EXPECT_THAT(why_refused(std::string(8, '\xFF')), HasSubstr("above the format's"));
  std::string long_header = file_of("{}", "");
  long_header[0] = 100;
  EXPECT_THAT(why_refused(long_header), HasSubstr("claims 100 bytes of a file of 10"));
  for (const char claimed : {'\3', '\n'}) {  // one more than there are, and as many as the whole file has
    long_header[0] = claimed;
    EXPECT_THAT(why_refused(long_header), HasSubstr("bytes of a file of 10"));
  }
  EXPECT_THAT(why_refused("", ""), HasSubstr("start with '{'"));
  EXPECT_THAT(why_refused(" {}", ""), HasSubstr("start with '{'"));
  EXPECT_THAT(why_refused("{", ""), HasSubstr("not valid JSON"));
  EXPECT_THAT(why_refused("{} x", ""), HasSubstr("not valid JSON"));
  EXPECT_THAT(why_refused("{}", "leftover"), HasSubstr("the data has 8 bytes"));
  EXPECT_EQ(why_refused("{}", ""), "accepted");
}

TEST(SafetensorsTypes, HaveTheSizesOfTheFormat) {
  const std::map<std::string, std::size_t> sizes = {
      {"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"I64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},  {"U64", 8},  {"U32", 4},     {"U16", 2},     {"U8", 1},      {"BOOL", 1}};
  for (const auto& [name, bytes] : sizes) EXPECT_EQ(safetensors_element_bytes(name), bytes) << name;
  for (const char* name : {"", "F", "f32", "F32 ", "F4"}) EXPECT_EQ(safetensors_element_bytes(name), std::nullopt);
}

TEST_F(Safetensors, ANegativeDimensionIsNoShapeEvenOfNothing) {
  const std::vector<TensorEntry> tensors{{"a", "U8", {0, -1}, {}}};
  EXPECT_THROW(write_safetensors(folder_ / "a.safetensors", tensors, {}), Error);
}

// The widest first, so that every tensor is aligned; equal ones as they were given.
TEST_F(Safetensors, WiderTypesComeFirst) {
  const std::string data = "aabbbbccdddd";
  const auto part = [&](std::size_t from, std::size_t count) { return bytes_of(data).subspan(from, count); };
  const std::vector<TensorEntry> tensors{{"a", "U8", {2}, part(0, 2)},
                                         {"b", "F32", {1}, part(2, 4)},
                                         {"c", "U8", {2}, part(6, 2)},
                                         {"d", "F32", {1}, part(8, 4)}};
  write_safetensors(folder_ / "a.safetensors", tensors, {});
  const std::string text = contents(folder_ / "a.safetensors");
  EXPECT_TRUE(text.ends_with("bbbbddddaacc"));
  EXPECT_THAT(text, HasSubstr(R"({"__metadata__":{"format":"pt"},"b":)"));
}

TEST(SafetensorsReader, RefusesHolesOverlapsAndDuplicates) {
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  EXPECT_THAT(why_refused("{" + a + R"(,"b":{"dtype":"U8","shape":[3],"data_offsets":[5,8]}})", "aaaabbbb"),
              HasSubstr("'b' starts at byte 5 where the tensor before it ends at 4"));
  EXPECT_THAT(why_refused("{" + a + R"(,"b":{"dtype":"U8","shape":[6],"data_offsets":[2,8]}})", "aaaabbbb"),
              HasSubstr("'b' starts at byte 2"));
  EXPECT_THAT(why_refused("{" + a + "," + a + "}", "aaaa"), HasSubstr("'a' appears twice"));
  EXPECT_THAT(why_refused(R"({"__metadata__":{},"__metadata__":{}})", ""), HasSubstr("appears twice"));
  EXPECT_THAT(why_refused(R"({"__metadata__":{"k":"1","k":"2"}})", ""), HasSubstr("'k' appears twice"));
  EXPECT_THAT(why_refused(R"({"a":{"dtype":"U8","dtype":"U8","shape":[0],"data_offsets":[0,0]}})", ""),
              HasSubstr("'dtype' twice"));
}

TEST(SafetensorsReader, RefusesShapesThatDisagreeWithTheBytes) {
  const auto tensor = [](const std::string& dtype, const std::string& shape, const std::string& offsets) {
    return R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}";
  };
  EXPECT_EQ(why_refused(tensor("F32", "[1]", "[0,4]"), "aaaa"), "accepted");
  EXPECT_THAT(why_refused(tensor("F32", "[2]", "[0,4]"), "aaaa"), HasSubstr("needs 8 bytes"));
  EXPECT_THAT(why_refused(tensor("F32", "[1]", "[0,8]"), "aaaaaaaa"),
              HasSubstr("needs 4 bytes by type and shape but has 8"));
  EXPECT_THAT(why_refused(tensor("F32", "[1]", "[4,0]"), "aaaa"), HasSubstr("spans bytes 4 to 0"));
  EXPECT_THAT(why_refused(tensor("F32", "[1]", "[0,5]"), "aaaa"), HasSubstr("spans bytes 0 to 5 of 4"));
  EXPECT_THAT(why_refused(tensor("F32", "[1]", "[0,18446744073709551615]"), "aaaa"), HasSubstr("spans bytes"));
  EXPECT_THAT(why_refused(tensor("F32", "[4294967296,4294967296]", "[0,0]"), ""), HasSubstr("overflows"));
  EXPECT_THAT(why_refused(tensor("F32", "[4611686018427387905]", "[0,4]"), "aaaa"), HasSubstr("overflows"));
  EXPECT_THAT(why_refused(tensor("F32", "[18446744073709551615]", "[0,4]"), "aaaa"), HasSubstr("63 bits"));
  EXPECT_THAT(why_refused(tensor("F32", "[-1]", "[0,4]"), "aaaa"), HasSubstr("a negative number"));
  EXPECT_THAT(why_refused(tensor("F32", "[1.0]", "[0,4]"), "aaaa"), HasSubstr("a fraction"));
  EXPECT_THAT(why_refused(tensor("F32", "[[1]]", "[0,4]"), "aaaa"), HasSubstr("a list"));
  EXPECT_THAT(why_refused(tensor("F32", "[1]", "[0]"), "aaaa"), HasSubstr("two offsets"));
  EXPECT_THAT(why_refused(tensor("F32", "[1]", "[0,4,4]"), "aaaa"), HasSubstr("more than two offsets"));
  EXPECT_THAT(why_refused_saying("convert the tensor to a type this version reads, such as F32 or BF16",
                                 file_of(tensor("F31", "[1]", "[0,4]"), "aaaa")),
              HasSubstr("unknown type 'F31'"));
}

TEST(SafetensorsReader, RefusesFieldsThatAreMissingOrForeign) {
  EXPECT_THAT(why_refused(R"({"a":{"dtype":"U8","shape":[0]}})", ""), HasSubstr("lacks one of"));
  EXPECT_THAT(why_refused(R"({"a":{}})", ""), HasSubstr("lacks one of"));
  EXPECT_THAT(why_refused(R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}})", ""), HasSubstr("'x'"));
  EXPECT_THAT(why_refused(R"({"a":1})", ""), HasSubstr("a number"));
  EXPECT_THAT(why_refused(R"({"__metadata__":{"k":1}})", ""), HasSubstr("a number"));
  EXPECT_THAT(why_refused(R"({"__metadata__":{"k":{}}})", ""), HasSubstr("an object"));
  EXPECT_THAT(why_refused(R"({"__metadata__":[]})", ""), HasSubstr("a list"));
  EXPECT_THAT(why_refused("{\"a\xFF\":{}}", ""), HasSubstr("not valid JSON"));
  EXPECT_THAT(why_refused(R"({"a\n\u001b[31m":1})", ""), HasSubstr("a??[31m"));  // no escapes reach the terminal
}

TEST(SafetensorsReader, NestingAndHugeNamesCostNothing) {
  EXPECT_THAT(why_refused("{" + std::string(1'000'000, '['), ""), HasSubstr("not valid JSON"));
  EXPECT_THAT(why_refused("{\"a\":" + std::string(1'000'000, '['), ""), HasSubstr("a list"));
  EXPECT_LT(why_refused("{\"" + std::string(1'000'000, 'n') + "\":1}", "").size(), 400U);
}

TEST(SafetensorsReader, SurvivesEveryTruncationAndBitFlip) {
  const std::string file =
      file_of(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
              R"("b":{"dtype":"BF16","shape":[2],"data_offsets":[8,12]}} )",
              "aaaaAAAAbbbb");
  for (std::size_t length = 0; length < file.size(); ++length) {
    EXPECT_NE(why_refused(file.substr(0, length)), "accepted") << length;
  }
  for (std::size_t bit = 0; bit < 8 * file.size(); ++bit) {
    std::string flipped = file;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    read_everything(bytes_of(flipped));
  }
}

TEST(SafetensorsReader, SurvivesTheFuzzCorpus) {
  const fs::path corpus = fs::path(__FILE__).parent_path().parent_path() / "fuzz" / "corpus" / "safetensors_reader";
  std::size_t files = 0;
  for (const auto& entry : fs::directory_iterator(corpus)) {
    const MappedFile file = MappedFile::open(entry.path());
    // A copy of exactly the size, so that a sanitizer sees a read past the end.
    for (std::size_t length = 0; length <= file.bytes().size(); ++length) {
      const std::vector<std::byte> copy(file.bytes().begin(),
                                        file.bytes().begin() + static_cast<std::ptrdiff_t>(length));
      read_everything(copy);
    }
    ++files;
  }
  EXPECT_GE(files, 5U);
}

// Tensors given one after the other, in pieces, are the file that all at once would be.
TEST(SafetensorsWriterTest, WritesPieceByPiece) {
  const test::TemporaryFolder folder;
  const std::string first = "abcdefgh";
  const std::string second = "ijkl";
  write_safetensors(folder / "whole", std::vector<TensorEntry>{{"a", "F32", {2}, bytes_of(first)},
                                                               {"b", "U8", {2, 2}, bytes_of(second)}});
  const std::vector<TensorSpec> specs{{"a", "F32", {2}}, {"b", "U8", {2, 2}}};
  SafetensorsWriter pieces(folder / "pieces", specs);
  pieces.write(bytes_of(first.substr(0, 3)));
  EXPECT_FALSE(fs::exists(folder / "pieces"));
  pieces.write(bytes_of(first.substr(3)));
  pieces.write(bytes_of(second));
  pieces.commit();
  EXPECT_EQ(test::contents(folder / "pieces"), test::contents(folder / "whole"));
}

TEST(SafetensorsWriterTest, RefusesMoreAndFewerBytesThanTheTensorsHave) {
  const test::TemporaryFolder folder;
  const std::vector<TensorSpec> specs{{"a", "U8", {4}}};
  {
    SafetensorsWriter more(folder / "file", specs);
    EXPECT_THROW(more.write(bytes_of("12345")), Error);
    more.write(bytes_of("123"));
    EXPECT_THROW(more.commit(), Error);
  }
  EXPECT_TRUE(fs::is_empty(folder.path())) << "nothing stays behind";
  EXPECT_THROW(SafetensorsWriter(folder / "file", std::vector<TensorSpec>{{"a", "U8", {-1}}}), Error);
  EXPECT_THROW(SafetensorsWriter(folder / "file", std::vector<TensorSpec>{{"a", "U9", {1}}}), Error);
  EXPECT_THROW(SafetensorsWriter(folder / "file", std::vector<TensorSpec>{{"a", "U8", {1}}, {"a", "U8", {1}}}), Error);
}

}  // namespace
}  // namespace quaver
