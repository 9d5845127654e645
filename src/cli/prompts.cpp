#include "cli/prompts.h"

#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <iostream>

#include "data/documents.h"
#include "io/utf8.h"
#include "quaver/error.h"

namespace quaver {

namespace {

constexpr std::size_t most_bytes = 64 << 20;  // of a line, and of all of them

bool is_blank(std::string_view text) { return text.find_first_not_of(" \t\r") == std::string_view::npos; }

class PromptList {
 public:
  explicit PromptList(std::string source) : source_(std::move(source)) {}

  void add_text(std::string_view prompt, std::uint64_t line) {
    if (find_invalid_utf8(prompt) != std::string_view::npos) {
      throw Error(fmt::format("{}:{}: the prompt is not UTF-8", source_, line), "convert it to UTF-8");
    }
    if (!is_blank(prompt)) add({.text = std::string(prompt)}, prompt.size());
  }

  void add_json(const TextLine& line) {
    try {
      add(parse_prompt(line.text), line.text.size());
    } catch (const Error& error) {
      throw Error(fmt::format("{}:{}: {}", source_, line.number, error.what()), error.remedy());
    }
  }

  // A line that never ends is not kept.
  void read_lines(std::istream& in) {
    std::string line;
    std::uint64_t number = 1;
    for (char c = 0; in.get(c);) {
      if (c != '\n') {
        line.push_back(c);
        if (line.size() > most_bytes) too_large();
        continue;
      }
      end_line(line, number++);
    }
    end_line(line, number);
    if (in.bad()) throw Error(source_ + ": cannot be read", "name a file of prompts, one per line");
  }

  std::vector<Prompt> take() {
    if (prompts_.empty()) throw Error(source_ + ": no prompts", "write one per line");
    return std::move(prompts_);
  }

 private:
  void add(Prompt prompt, std::size_t bytes) {
    bytes_ += bytes;
    if (bytes_ > most_bytes) too_large();
    prompts_.push_back(std::move(prompt));
  }

  void end_line(std::string& line, std::uint64_t number) {
    if (line.ends_with('\r')) line.pop_back();
    add_text(line, number);
    line.clear();
  }

  [[noreturn]] void too_large() const {
    throw Error(source_ + ": more than 64 MiB of prompts", "cut it into several files");
  }

  std::string source_;
  std::vector<Prompt> prompts_;
  std::size_t bytes_ = 0;
};

}  // namespace

std::vector<Prompt> read_prompts(const std::string& name) {
  if (name == "-") {
    PromptList prompts("standard input");
    prompts.read_lines(std::cin);
    return prompts.take();
  }
  PromptList prompts(name);
  std::ifstream in(name, std::ios::binary);
  if (!in) throw Error(fmt::format("{}: {}", name, std::strerror(errno)), "name a file of prompts, one per line");
  if (is_json_lines(name)) {
    read_lines(in, name, most_bytes, [&](const TextLine& line) { prompts.add_json(line); });
    return prompts.take();
  }
  prompts.read_lines(in);
  return prompts.take();
}

}  // namespace quaver
