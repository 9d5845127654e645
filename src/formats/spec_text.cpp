// A spec in words, and back. Plans print these words, and recipes in files are written in them.
#include <algorithm>
#include <array>
#include <charconv>
#include <system_error>
#include <utility>

#include "formats/quant_spec.h"
#include "quaver/error.h"

namespace quaver {
namespace {

template <class Value, std::size_t N>
using Words = std::array<std::pair<Value, std::string_view>, N>;

constexpr Words<ScaleFormat, 6> scale_words{{{ScaleFormat::f32, "f32"},
                                             {ScaleFormat::f32_power_of_two, "pow2"},
                                             {ScaleFormat::e8m0, "e8m0"},
                                             {ScaleFormat::e8m0_floor, "e8m0-floor"},
                                             {ScaleFormat::e4m3, "e4m3"},
                                             {ScaleFormat::e4m3_4over6, "e4m3-4over6"}}};
constexpr Words<ScalePolicy, 4> policy_words{{{ScalePolicy::none, "unscaled"},
                                              {ScalePolicy::current, "current"},
                                              {ScalePolicy::delayed, "delayed"},
                                              {ScalePolicy::fixed, "fixed"}}};
constexpr Words<Block, 7> block_words{{{block::tensor, "tensor"},
                                       {block::row, "row"},
                                       {block::b1x128, "1x128"},
                                       {block::b128x128, "128x128"},
                                       {block::b1x32, "1x32"},
                                       {block::b1x16, "1x16"},
                                       {block::b16x16, "16x16"}}};

template <class Value, std::size_t N>
std::string_view word_of(const Words<Value, N>& words, const Value& value) {
  const auto* found = std::find_if(words.begin(), words.end(), [&](const auto& entry) { return entry.first == value; });
  return found == words.end() ? std::string_view() : found->second;
}

// A word from outside for a message: short, and without what a terminal would obey.
std::string printable(std::string_view word) {
  constexpr std::size_t longest = 32;
  std::string text;
  for (const char c : word.substr(0, longest)) text += c > 0x20 && c < 0x7F ? c : '?';
  return text + (word.size() > longest ? "…" : "");
}

std::string shown(std::string_view word) { return "'" + printable(word) + "'"; }

template <class Value, std::size_t N>
Value value_of(const Words<Value, N>& words, std::string_view word, const std::string& kind) {
  const auto* found = std::find_if(words.begin(), words.end(), [&](const auto& entry) { return entry.second == word; });
  if (found != words.end()) return found->first;
  std::string known;
  for (const auto& entry : words) known += (known.empty() ? "" : ", ") + std::string(entry.second);
  throw Error(word.empty() ? "it has no " + kind : "there is no " + kind + " " + shown(word), "use one of " + known);
}

template <class Number>
Number number_in(std::string_view word, const std::string& what) {
  Number number{};
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (word.empty() || error != std::errc() || end != word.data() + word.size()) {
    throw Error(what + " needs a number behind it, not " + shown(word), "write it like shrink 0.75 or margin 2");
  }
  return number;
}

// Shortest text that reads back as the same float.
std::string short_number(float x) {
  std::array<char, 32> text{};
  const auto [end, error] = std::to_chars(text.data(), text.data() + text.size(), x);
  return {text.data(), end};
}

class WordReader {
 public:
  explicit WordReader(std::string_view text) : rest_(text) {}

  // Empty at the end.
  std::string_view next() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(' '), rest_.size()));
    const std::string_view word = rest_.substr(0, rest_.find(' '));
    rest_.remove_prefix(word.size());
    return word;
  }

 private:
  std::string_view rest_;
};

void read_scaling(WordReader& words, QuantSpec& spec) {
  const std::string_view place = words.next();
  const std::size_t slash = place.find('/');
  spec.block = value_of(block_words, place.substr(0, slash), "block");
  if (slash != std::string_view::npos) spec.scale = value_of(scale_words, place.substr(slash + 1), "scale format");
  spec.policy = value_of(policy_words, words.next(), "policy");
}

// A word behind the policy, and what belongs to it.
void read_option(std::string_view word, WordReader& words, QuantSpec& spec) {
  if (word == "stochastic") {
    spec.rounding = Rounding::stochastic;
  } else if (word == "hadamard") {
    spec.rotation = Rotation::hadamard;
  } else if (word == "shrink") {
    spec.shrink = number_in<float>(words.next(), "shrink");
  } else if (word == "margin") {
    spec.margin = number_in<int>(words.next(), "margin");
  } else {
    throw Error(shown(word) + " means nothing there",
                "after the format, block and policy come stochastic, hadamard, shrink NUMBER and margin INTEGER");
  }
}

}  // namespace

std::string name_of(const Block& b) {
  const std::string_view known = word_of(block_words, b);
  return known.empty() ? std::to_string(b.rows) + "x" + std::to_string(b.cols) : std::string(known);
}

std::string name_of(ScalePolicy policy) { return std::string(word_of(policy_words, policy)); }

std::string describe(const QuantSpec& spec) {
  std::string text(info(spec.format).name);
  if (is_low_precision(spec.format)) {
    text.append(" ").append(name_of(spec.block));
    if (spec.scale != ScaleFormat::f32) text.append("/").append(word_of(scale_words, spec.scale));
    text.append(" ").append(name_of(spec.policy));
  }
  if (spec.rounding == Rounding::stochastic) text += " stochastic";
  if (spec.rotation == Rotation::hadamard) text += " hadamard";
  if (spec.shrink != 1.0F) text.append(" shrink ").append(short_number(spec.shrink));
  if (spec.margin != 0) text.append(" margin ").append(std::to_string(spec.margin));
  return text;
}

QuantSpec parse_quant_spec(std::string_view text) {
  WordReader words(text);
  QuantSpec spec;
  spec.format = parse_format(printable(words.next()));
  if (is_low_precision(spec.format)) read_scaling(words, spec);
  for (std::string_view word = words.next(); !word.empty(); word = words.next()) read_option(word, words, spec);
  check(spec, "");
  return spec;
}

}  // namespace quaver
