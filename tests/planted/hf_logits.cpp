// Logits of a Hugging Face model folder, for the comparison with transformers (scripts/interop-test): those that follow
// each prefix of the tokens, as FP32 values on standard output.
//   hf_logits FOLDER 5,17,3 [--section.key=value …]
#include <cstdio>
#include <cstdlib>
#include <fmt/format.h>
#include <span>
#include <string>
#include <vector>

#include "quaver/error.h"
#include "train/run.h"

namespace {

using namespace quaver;

std::vector<std::int32_t> tokens_of(const char* text) {
  std::vector<std::int32_t> tokens;
  for (char* end = nullptr; *text != '\0'; text = *end == ',' ? end + 1 : end) {
    tokens.push_back(static_cast<std::int32_t>(std::strtol(text, &end, 10)));
    if (end == text) throw Error("tokens are numbers with commas between them", "for example 5,17,3");
  }
  return tokens;
}

void write_logits(std::span<char* const> words) {
  if (words.size() < 3) throw Error("a folder and tokens are missing", "hf_logits FOLDER 5,17,3");
  std::vector<std::string> settings{fmt::format("--model.from={}", words[1])};
  settings.insert(settings.end(), words.begin() + 3, words.end());
  const auto model = open_pretrained(settings, [](const std::string& text) { fmt::print(stderr, "{}\n", text); });
  const std::vector<std::int32_t> tokens = tokens_of(words[2]);
  for (std::size_t length = 1; length <= tokens.size(); ++length) {
    const std::vector<float> logits = model->trainer->next_token_logits(std::span(tokens).first(length));
    if (std::fwrite(logits.data(), sizeof(float), logits.size(), stdout) != logits.size()) {
      throw Error("standard output cannot be written", "check where it goes");
    }
  }
}

}  // namespace

int main(int count, char** words) {
  try {
    write_logits({words, static_cast<std::size_t>(count)});
    return 0;
  } catch (const quaver::Error& error) {
    fmt::print(stderr, "{}\n  → {}\n", error.what(), error.remedy());
    return 1;
  }
}
