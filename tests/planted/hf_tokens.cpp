// Ids by a tokenizer.json, for the comparison with Hugging Face's tokenizers (scripts/tokenizer-test). Reads texts from
// standard input, one JSON string per line, or a list of bytes where it is no UTF-8. Writes one line first, {"prefix":
// ids, "end_of_text": id, "load_s": seconds}, then one for each text: [ids with special tokens as text, ids with
// special tokens parsed, the latter decoded].
//   hf_tokens TOKENIZER.JSON
//   hf_tokens TOKENIZER.JSON --time TEXT_FILE     megabytes per second, one thread
#include <chrono>
#include <fmt/format.h>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "data/tokenizer.h"
#include "io/file_io.h"
#include "quaver/error.h"

namespace {

using namespace quaver;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

std::string line_of(const json& value) { return value.dump(-1, ' ', true, json::error_handler_t::replace) + "\n"; }

std::string text_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  std::string text;
  for (const auto& byte : value) text.push_back(static_cast<char>(byte.get<int>()));
  return text;
}

void write_ids(const Tokenizer& tokenizer, double load_seconds) {
  const std::vector<std::int32_t> prefix(tokenizer.prefix().begin(), tokenizer.prefix().end());
  std::cout << line_of({{"prefix", prefix}, {"end_of_text", tokenizer.end_of_text()}, {"load_s", load_seconds}});
  for (std::string line; std::getline(std::cin, line);) {
    const std::string text = text_of(json::parse(line));
    const std::vector<std::int32_t> parsed = tokenizer.encode(text, SpecialTokens::parsed);
    std::cout << line_of({tokenizer.encode(text), parsed, tokenizer.decode(parsed)});
  }
}

void time_encoding(const Tokenizer& tokenizer, const std::string& path) {
  constexpr std::uint64_t longest = std::uint64_t{1} << 30;
  constexpr std::size_t document_bytes = 64 << 10;
  const std::string text = read_file(path, longest);
  std::size_t ids = 0;
  const auto start = Clock::now();
  for (std::size_t at = 0; at < text.size(); at += document_bytes) {
    ids += tokenizer.encode(std::string_view(text).substr(at, document_bytes)).size();
  }
  const double seconds = seconds_since(start);
  const auto bytes = static_cast<double>(text.size());
  fmt::print("{:.1f} MB in {:.2f} s: {:.1f} MB/s, {:.2f} bytes per token\n", bytes / 1e6, seconds,
             bytes / 1e6 / seconds, bytes / static_cast<double>(ids));
}

void run(std::span<char* const> words) {
  if (words.size() < 2) throw Error("a tokenizer is missing", "hf_tokens TOKENIZER.JSON");
  const auto start = Clock::now();
  const auto tokenizer = load_tokenizer(words[1]);
  const double load_seconds = seconds_since(start);
  if (words.size() < 4) return write_ids(*tokenizer, load_seconds);
  fmt::print("read in {:.2f} s\n", load_seconds);
  time_encoding(*tokenizer, words[3]);
}

}  // namespace

int main(int count, char** words) {
  try {
    std::ios::sync_with_stdio(false);
    run({words, static_cast<std::size_t>(count)});
    return 0;
  } catch (const quaver::Error& error) {
    fmt::print(stderr, "{}\n  → {}\n", error.what(), error.remedy());
  } catch (const json::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
  }
  return 1;
}
