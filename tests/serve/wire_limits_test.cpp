// Queries, requests, responses and JSON at their limits, byte by byte.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>

#include "serve/json_text.h"
#include "serve/query.h"
#include "serve/request.h"
#include "serve/response.h"

namespace quaver::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(PercentDecoded, TakesEveryHexadecimalDigit) {
  EXPECT_EQ(percent_decoded("%0f%F0%aA%9f%f9%AF%fa"), "\x0f\xf0\xaa\x9f\xf9\xaf\xfa");
  EXPECT_EQ(percent_decoded("%0g%G0%/0%:0%@1%`1"), "%0g%G0%/0%:0%@1%`1");
  EXPECT_EQ(percent_decoded("a+b%2Bc"), "a b+c");
  EXPECT_EQ(percent_decoded("%41%4"), "A%4");
  EXPECT_EQ(percent_decoded("a%2F"), "a/") << "an escape may end the text";
  EXPECT_EQ(percent_decoded(""), "");
}

// The ends of the ranges of RFC 3629, and one beyond them.
TEST(CleanText, IsUtf8UpToTheEndsOfItsRanges) {
  for (const char* text : {"\x20", "\x7e", "\xc2\xa0", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xee\x80\x80",
                           "\xef\xbf\xbf", "\xf0\x90\x80\x80", "\xf3\xbf\xbf\xbf", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_clean_text(text)) << ::testing::PrintToString(text);
  }
  for (const char* text : {"\x1f",
                           "\x7f",
                           "\xc0\x80",
                           "\xc1\xbf",
                           "\xc2\x9f",
                           "\xc2\x7f",
                           "\xc2\xc0",
                           "\xe0\x9f\xbf",
                           "\xed\xa0\x80",
                           "\xf0\x8f\xbf\xbf",
                           "\xf4\x90\x80\x80",
                           "\xf5\x80\x80\x80",
                           "\xe1\x80",
                           "\xe1\x80\x7f",
                           "\xf1\x80\x80",
                           "\xf1\x80\x80\xc0",
                           "\xbf",
                           "a\x1f",
                           "\xff\x80\x80",
                           "\xc3",
                           "\xf8\x88\x80\x80"}) {
    EXPECT_FALSE(is_clean_text(text)) << ::testing::PrintToString(text);
  }
  EXPECT_FALSE(is_clean_text(std::string_view("a\0b", 3)));
}

TEST(Query, HasSixtyFourParameters) {
  std::string text = "&";
  for (int i = 1; i <= 65; ++i) text += fmt::format("p{}={}&", i, i);
  const Query query(text);
  EXPECT_EQ(query.text("p1"), "1");
  EXPECT_EQ(query.text("p64"), "64");
  EXPECT_EQ(query.text("p65"), std::nullopt);
}

TEST(Query, ValuesMayHoldEqualsSignsAndTheFirstOfANameCounts) {
  const Query query("a=b=c&a=d&=e&f");
  EXPECT_EQ(query.text("a"), "b=c");
  EXPECT_EQ(query.text(""), "e");
  EXPECT_EQ(query.text("f"), "");
}

TEST(Query, NumbersMayBeTheirBounds) {
  const Query query("n=7&zero=0&largest=18446744073709551615&over=18446744073709551616&tail=7x");
  EXPECT_EQ(query.number("n", 1, 7, 7), 7U);
  EXPECT_EQ(query.number("n", 1, 7, 9), 7U);
  EXPECT_EQ(query.number("n", 1, 5, 7), 7U);
  EXPECT_THROW(query.number("n", 1, 8, 9), BadParameter);
  EXPECT_THROW(query.number("n", 1, 5, 6), BadParameter);
  EXPECT_EQ(query.number("zero", 1, 0, 0), 0U);
  EXPECT_EQ(query.number("largest", 1, 0, UINT64_MAX), UINT64_MAX);
  EXPECT_THROW(query.number("over", 1, 0, UINT64_MAX), BadParameter);
  EXPECT_THROW(query.number("tail", 1, 0, 100), BadParameter);
  EXPECT_EQ(query.number("absent", 77, 0, 5), 77U) << "the fallback is not checked";
  try {
    query.number("n", 1, 8, 9);
  } catch (const BadParameter& error) {
    EXPECT_THAT(error.what(), HasSubstr(" n "));
    EXPECT_EQ(error.remedy(), "give one from 8 to 9");
  }
}

TEST(Query, NamesHaveUpTo256Bytes) {
  EXPECT_EQ(name_in(Query("site=" + std::string(256, 'a')), "site").size(), 256U);
  EXPECT_THROW(name_in(Query("site=" + std::string(257, 'a')), "site"), BadParameter);
  EXPECT_THROW(name_in(Query("other=a"), "site"), BadParameter);
  EXPECT_EQ(name_in(Query("site=a"), "site"), "a");
}

TEST(Query, ListsHaveAsManyPartsAsAskedFor) {
  const Query query("l=,a,,b,c,");
  EXPECT_THAT(query.list("l", 3), ElementsAre("a", "b", "c"));
  EXPECT_THAT(query.list("l", 2), ElementsAre("a", "b"));
  EXPECT_THAT(query.list("l", 0), ElementsAre());
}

int parse_status(const std::string& head) {
  const auto parsed = parse_head(head);
  const auto* bad = std::get_if<BadRequest>(&parsed);
  return bad == nullptr ? 200 : bad->status;
}

TEST(RequestBytes, EveryByteOfAnAddressIsPrintable) {
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_good = byte > 0x20 && byte < 0x7f && byte != '#';
    const std::string head = "GET /a" + std::string(1, static_cast<char>(byte)) + "b HTTP/1.1\r\n\r\n";
    EXPECT_EQ(parse_status(head), is_good ? 200 : 400) << byte;
  }
}

TEST(RequestBytes, ValuesOfHeadersHoldAnythingButControls) {
  for (int byte = 0; byte < 256; ++byte) {
    const bool is_good = byte == '\t' || (byte >= 0x20 && byte != 0x7f);
    const std::string head = "GET / HTTP/1.1\r\nA: b" + std::string(1, static_cast<char>(byte)) + "c\r\n\r\n";
    EXPECT_EQ(parse_status(head), is_good ? 200 : 400) << byte;
  }
}

TEST(RequestBytes, MethodsAndNamesAreTokens) {
  const std::string marks = "!#$%&'*+-.^_`|~";
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    const bool is_good = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c != '\0' && marks.find(c) != std::string::npos);
    EXPECT_EQ(parse_status("G" + std::string(1, c) + "T / HTTP/1.1\r\n\r\n"), is_good ? 200 : 400) << byte;
    const bool ends_name = c == ':';
    EXPECT_EQ(parse_status("GET / HTTP/1.1\r\nA" + std::string(1, c) + "B: c\r\n\r\n"),
              is_good || ends_name ? 200 : 400)
        << byte;
  }
}

TEST(RequestBytes, BlanksAndTabsAroundAValueAreNoPartOfIt) {
  const auto parsed = parse_head("GET / HTTP/1.1\r\nA:\t b c \t\r\nX-Y:d\r\nEmpty: \t \r\n\r\n");
  const auto& request = std::get<Request>(parsed);
  EXPECT_EQ(request.header("a"), "b c");
  EXPECT_EQ(request.header("x-y"), "d");
  EXPECT_EQ(request.header("empty"), "");
  EXPECT_EQ(request.header("X-Y"), std::nullopt) << "looked up in lowercase";
}

TEST(RequestBytes, WhatDecidesSomethingIsSaidOnce) {
  for (const char* name : {"Host", "Origin", "Content-Type", "Authorization", "Cookie"}) {
    const std::string once = fmt::format("GET / HTTP/1.1\r\n{}: a\r\n", name);
    EXPECT_EQ(parse_status(once + "\r\n"), 200) << name;
    EXPECT_EQ(parse_status(once + fmt::format("{}: a\r\n\r\n", name)), 400) << name;
  }
  EXPECT_EQ(parse_status("GET / HTTP/1.1\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\n"), 400);
  EXPECT_EQ(parse_status("GET / HTTP/1.1\r\nAccept: a\r\nAccept: b\r\n\r\n"), 200);
}

TEST(RequestBytes, LengthsOfBodiesAreWholeNumbersUpTo64KiB) {
  const auto with = [](const std::string& length) {
    return parse_status("POST / HTTP/1.1\r\nContent-Length: " + length + "\r\n\r\n");
  };
  EXPECT_EQ(with("0"), 200);
  EXPECT_EQ(with("65536"), 200);
  EXPECT_EQ(with("65537"), 413);
  EXPECT_EQ(with("18446744073709551616"), 413);
  for (const char* bad : {"", "-1", "1 2", "1.0", "a", "0x1"}) EXPECT_EQ(with(bad), 400) << bad;
  EXPECT_EQ(parse_status("POST / HTTP/1.1\r\nTransfer-Encoding: identity\r\nContent-Length: 1\r\n\r\n"), 411);
  const auto parsed = parse_head("POST / HTTP/1.1\r\nContent-Length: 65536\r\n\r\n");
  EXPECT_EQ(std::get<Request>(parsed).body_bytes, 65536U);
}

// A target of 8 KiB with 64 bytes around it, a head of 16 KiB without its empty line.
TEST(RequestBytes, HeadsAreBoundedWhileTheyArrive) {
  EXPECT_FALSE(too_long(std::string(8192 + 64, 'a')));
  EXPECT_EQ(too_long(std::string(8192 + 65, 'a'))->status, 414);
  EXPECT_FALSE(too_long(std::string(8192 + 64, 'a') + "\r\n"));
  EXPECT_EQ(too_long(std::string(8192 + 65, 'a') + "\r\n")->status, 414);
  const std::string line = "GET / HTTP/1.1\r\n";
  EXPECT_FALSE(too_long(line + std::string(16384 - line.size(), 'a')));
  EXPECT_EQ(too_long(line + std::string(16385 - line.size(), 'a'))->status, 431);
  EXPECT_FALSE(too_long(line + std::string(16384 - line.size(), 'a') + "\r\n\r\n" + std::string(100, 'b')));
  EXPECT_EQ(parse_status(line + "A: " + std::string(16384 - line.size() - 3, 'a') + "\r\n\r\n"), 200);
  EXPECT_EQ(parse_status(line + "A: " + std::string(16385 - line.size() - 3, 'a') + "\r\n\r\n"), 431);
  EXPECT_EQ(head_length("\r\n\r\n"), 4U);
  EXPECT_EQ(head_length("a\r\n\r\n\r\n\r\n"), 5U);
}

TEST(RequestBytes, AnAddressEndsAtItsFirstQuestionMark) {
  const auto parsed = parse_head("GET /a?b?c HTTP/1.1\r\n\r\n");
  EXPECT_EQ(std::get<Request>(parsed).path, "/a");
  EXPECT_EQ(std::get<Request>(parsed).query, "b?c");
  const auto bare = parse_head("GET /a? HTTP/1.1\r\n\r\n");
  EXPECT_EQ(std::get<Request>(bare).path, "/a");
  EXPECT_EQ(std::get<Request>(bare).query, "");
}

TEST(RequestBytes, TheVersionIsTheLastWordOfTheLine) {
  EXPECT_EQ(parse_status("GET / HTTP/1.1 x\r\n\r\n"), 400);
  EXPECT_EQ(parse_status("GET / HTTP/1.1 HTTP/1.1\r\n\r\n"), 400);
  EXPECT_EQ(parse_status("GET / HTTP/1.2\r\n\r\n"), 505);
  EXPECT_EQ(parse_status("GET / HTTP/\r\n\r\n"), 505);
  EXPECT_EQ(parse_status("GET / HTT\r\n\r\n"), 400);
}

constexpr std::string_view strict_lines =
    "Content-Security-Policy: default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'\r\n"
    "X-Content-Type-Options: nosniff\r\n"
    "X-Frame-Options: DENY\r\n"
    "Referrer-Policy: no-referrer\r\n"
    "Cross-Origin-Resource-Policy: same-origin\r\n"
    "Cross-Origin-Opener-Policy: same-origin\r\n";

TEST(HeadOf, AnAnswerIsWrittenExactlySo) {
  EXPECT_EQ(head_of(json_response("{}"), KeepAlive::yes),
            fmt::format("HTTP/1.1 200 OK\r\n{}Cache-Control: no-store\r\n"
                        "Content-Type: application/json; charset=utf-8\r\nContent-Length: 2\r\n"
                        "Connection: keep-alive\r\n\r\n",
                        strict_lines));
  Response own = error_response(404, "w", "r");
  EXPECT_EQ(own.body, R"({"error":"w","remedy":"r"})");
  own.headers = {{"Cache-Control", "no-cache"}, {"ETag", "x"}};
  EXPECT_EQ(head_of(own, KeepAlive::no),
            fmt::format("HTTP/1.1 404 Not Found\r\n{}Cache-Control: no-cache\r\nETag: x\r\n"
                        "Content-Type: application/json; charset=utf-8\r\nContent-Length: 26\r\n"
                        "Connection: close\r\n\r\n",
                        strict_lines));
}

TEST(HeadOf, WhatHasNoBodyHasNoLength) {
  Response response;
  response.status = 204;
  EXPECT_THAT(head_of(response, KeepAlive::yes), Not(HasSubstr("Content-Length")));
  EXPECT_THAT(head_of(response, KeepAlive::yes), Not(HasSubstr("\nContent-Type:")));
  response.status = 304;
  EXPECT_THAT(head_of(response, KeepAlive::yes), Not(HasSubstr("Content-Length")));
  response.status = 303;
  EXPECT_THAT(head_of(response, KeepAlive::yes), HasSubstr("\r\nContent-Length: 0\r\n"));
  response.status = 200;
  response.kind = Body::events;
  EXPECT_THAT(head_of(response, KeepAlive::no), Not(HasSubstr("Content-Length")));
}

TEST(HeadOf, EveryStatusHasItsPhrase) {
  const std::pair<int, const char*> phrases[] = {{200, "OK"},
                                                 {204, "No Content"},
                                                 {303, "See Other"},
                                                 {304, "Not Modified"},
                                                 {400, "Bad Request"},
                                                 {401, "Unauthorized"},
                                                 {403, "Forbidden"},
                                                 {404, "Not Found"},
                                                 {405, "Method Not Allowed"},
                                                 {408, "Request Timeout"},
                                                 {411, "Length Required"},
                                                 {413, "Content Too Large"},
                                                 {414, "URI Too Long"},
                                                 {415, "Unsupported Media Type"},
                                                 {431, "Request Header Fields Too Large"},
                                                 {500, "Internal Server Error"},
                                                 {503, "Service Unavailable"},
                                                 {505, "HTTP Version Not Supported"}};
  for (const auto& [status, phrase] : phrases) {
    Response response;
    response.status = status;
    EXPECT_THAT(head_of(response, KeepAlive::no),
                ::testing::StartsWith(fmt::format("HTTP/1.1 {} {}\r\n", status, phrase)));
  }
}

TEST(JsonText, ArraysHoldNumbersThatReadBackAndNullForTheRest) {
  std::string json;
  append_array(json, std::vector<std::uint64_t>{});
  append_array(json, std::vector<std::uint64_t>{0, UINT64_MAX});
  append_array(json, std::vector<float>{0.1F, -2.5F, std::numeric_limits<float>::infinity()});
  const double infinity = std::numeric_limits<double>::infinity();
  append_array(json, std::vector<double>{-infinity, std::numeric_limits<double>::quiet_NaN(), 0.1, 1e300});
  EXPECT_EQ(json, "[][0,18446744073709551615][0.1,-2.5,null][null,null,0.1,1e+300]");
  EXPECT_EQ(json_string("a\"b\\c\n\x01/é"), "\"a\\\"b\\\\c\\n\\u0001/é\"");
  EXPECT_EQ(json_string("\xff"), "\"\xef\xbf\xbd\"");
  EXPECT_EQ(json_string(""), "\"\"");
}

}  // namespace
}  // namespace quaver::test
