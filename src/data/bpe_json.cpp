#include <array>
#include <cstdint>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>

#include "data/bpe.h"
#include "io/file_io.h"
#include "io/utf8.h"
#include "quaver/error.h"

// tokenizer.json writes a token's bytes as printable characters: a byte that is printable in Latin-1 stands for
// itself, the others for U+0100 upward in order (a space is Ġ, a line feed Ċ).
namespace quaver {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::uint64_t max_file_bytes = 256u << 20;
constexpr std::int64_t max_tokens = 1 << 24;
constexpr const char* damaged = "the file is damaged or not a tokenizer.json; get it again";
constexpr const char* unsupported = "use a byte-level BPE tokenizer such as GPT-2's, Llama 3's or Qwen's";

constexpr std::array<std::uint16_t, 256> char_of_byte = [] {
  std::array<std::uint16_t, 256> chars{};
  std::uint16_t next = 256;
  for (std::uint16_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
    chars[byte] = printable ? byte : next++;
  }
  return chars;
}();

constexpr std::size_t last_char = 256 + 67;  // 68 bytes are not printable
constexpr std::array<std::int16_t, last_char + 1> byte_of_char = [] {
  std::array<std::int16_t, last_char + 1> bytes{};
  bytes.fill(-1);
  for (std::int16_t byte = 0; byte < 256; ++byte) bytes[char_of_byte[static_cast<std::size_t>(byte)]] = byte;
  return bytes;
}();

std::string to_chars(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) append_utf8(char_of_byte[static_cast<unsigned char>(c)], text);
  return text;
}

std::optional<std::string> to_bytes(std::string_view text) {
  std::string bytes;
  for (std::size_t i = 0; i < text.size();) {
    const CodePoint point = decode_utf8(text, i);
    if (!point.valid || point.value > last_char || byte_of_char[point.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(byte_of_char[point.value]));
    i += static_cast<std::size_t>(point.bytes);
  }
  return bytes;
}

// Reads one tokenizer.json; `source_` names it in every error.
class TokenizerReader {
 public:
  explicit TokenizerReader(std::string_view source) : source_(source) {}

  BpeDefinition read(const json& file) {
    if (!file.is_object()) fail("does not hold an object", damaged);
    read_normalizer(file);
    read_pre_tokenizer(file);
    const json& model = member(file, "model");
    check_model(model);
    read_tokens(member(model, "vocab"), file);
    read_merges(member(model, "merges"));
    definition_.end_of_text = find_end_of_text();
    return std::move(definition_);
  }

 private:
  [[noreturn]] void fail(const std::string& what, const char* remedy) const {
    throw Error(fmt::format("{}: {}", source_, what), remedy);
  }

  const json& member(const json& object, const char* key) const {
    const auto found = object.find(key);
    if (found == object.end()) fail(fmt::format("no \"{}\"", key), damaged);
    return *found;
  }

  // Absent and null mean the same in these files.
  static bool has(const json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && !found->is_null();
  }

  std::string text_of(const json& object, const char* key) const {
    if (!object.is_object() || !has(object, key)) return "";
    const json& value = object.at(key);
    if (!value.is_string()) fail(fmt::format("\"{}\" is not a string", key), damaged);
    return value.get<std::string>();
  }

  bool flag_of(const json& object, const char* key, bool otherwise) const {
    if (!has(object, key)) return otherwise;
    const json& value = object.at(key);
    if (!value.is_boolean()) fail(fmt::format("\"{}\" is neither true nor false", key), damaged);
    return value.get<bool>();
  }

  void read_normalizer(const json& file) {
    if (!has(file, "normalizer")) return;
    const std::string type = text_of(file.at("normalizer"), "type");
    if (type != "NFC") fail(fmt::format("the normalizer \"{}\" is not supported", type), unsupported);
    definition_.note = "the tokenizer normalizes text to NFC, which is not done here: text not in NFC gets other ids";
  }

  void read_pre_tokenizer(const json& file) {
    const json& pre = member(file, "pre_tokenizer");
    if (text_of(pre, "type") == "ByteLevel") {
      check_byte_level(pre, true);
      definition_.pattern = SplitPattern::gpt2;
      return;
    }
    if (text_of(pre, "type") != "Sequence") {
      fail(fmt::format("the pre-tokenizer \"{}\" is not supported", text_of(pre, "type")), unsupported);
    }
    const json& steps = member(pre, "pretokenizers");
    const bool split_then_bytes = steps.is_array() && steps.size() == 2 && text_of(steps[0], "type") == "Split" &&
                                  text_of(steps[1], "type") == "ByteLevel";
    if (!split_then_bytes) fail("the pre-tokenizer is not a Split followed by ByteLevel", unsupported);
    check_byte_level(steps[1], false);
    const json& pattern = member(steps[0], "pattern");
    const std::string regex = text_of(pattern, "Regex");
    const std::optional<SplitPattern> known = pattern_of(regex);
    if (!known) fail(fmt::format("the split pattern \"{}\" is not supported", regex), unsupported);
    if (text_of(steps[0], "behavior") != "Isolated" || flag_of(steps[0], "invert", false)) {
      fail("the split is not \"Isolated\"", unsupported);
    }
    definition_.pattern = *known;
  }

  void check_byte_level(const json& step, bool expected_regex) const {
    if (flag_of(step, "add_prefix_space", true)) fail("\"add_prefix_space\" is set", unsupported);
    if (flag_of(step, "use_regex", true) != expected_regex) {
      fail(fmt::format("ByteLevel's \"use_regex\" is {}", !expected_regex), unsupported);
    }
  }

  void check_model(const json& model) {
    if (!model.is_object()) fail("\"model\" is not an object", damaged);
    const std::string type = text_of(model, "type");
    if (type != "BPE" && !type.empty()) fail(fmt::format("the model is {}, not BPE", type), unsupported);
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!text_of(model, key).empty()) fail(fmt::format("\"{}\" is set", key), unsupported);
    }
    if (flag_of(model, "byte_fallback", false)) fail("\"byte_fallback\" is set", unsupported);
    const bool take = flag_of(model, "ignore_merges", false);
    definition_.whole_pieces = take ? WholePieces::take : WholePieces::merge;
  }

  std::size_t id_of(const json& value, std::string_view token) const {
    if (!value.is_number_integer()) fail(fmt::format("the id of \"{}\" is not an integer", token), damaged);
    const auto id = value.get<std::int64_t>();
    if (id < 0 || id >= static_cast<std::int64_t>(definition_.tokens.size())) {
      fail(
          fmt::format("the id {} of \"{}\" is outside a vocabulary of {} tokens", id, token, definition_.tokens.size()),
          damaged);
    }
    return static_cast<std::size_t>(id);
  }

  void place(std::size_t id, std::string bytes, bool special) {
    if (taken_[id]) fail(fmt::format("two tokens have the id {}", id), damaged);
    taken_[id] = true;
    definition_.tokens[id] = std::move(bytes);
    definition_.special[id] = special;
  }

  // Added tokens come first: some files list them in the vocabulary too, where they are not byte-level text. As many
  // ids as distinct tokens, each inside that count and used once, leave no gap.
  void read_tokens(const json& vocab, const json& file) {
    if (!vocab.is_object()) fail("\"vocab\" is not an object", damaged);
    static const json none = json::array();
    const json& added = has(file, "added_tokens") ? file.at("added_tokens") : none;
    if (!added.is_array()) fail("\"added_tokens\" is not a list", damaged);
    std::size_t count = vocab.size();
    for (const json& token : added) {
      if (!token.is_object() || text_of(token, "content").empty()) fail("an added token has no \"content\"", damaged);
      if (!vocab.contains(text_of(token, "content"))) ++count;
    }
    if (count > static_cast<std::size_t>(max_tokens)) fail(fmt::format("{} tokens are too many", count), damaged);
    definition_.tokens.resize(count);
    definition_.special.resize(count);
    taken_.resize(count);
    for (const json& token : added) {
      const std::string content = text_of(token, "content");
      place(id_of(member(token, "id"), content), content, true);
      if (vocab.contains(content) && vocab.at(content) != token.at("id")) {
        fail(fmt::format("\"{}\" has two ids", content), damaged);
      }
      added_.insert({content, 0});
    }
    for (const auto& [content, id] : vocab.items()) {
      if (added_.contains(content)) continue;
      std::optional<std::string> bytes = to_bytes(content);
      if (!bytes) fail(fmt::format("the token \"{}\" is not written in byte-level characters", content), unsupported);
      place(id_of(id, content), *std::move(bytes), false);
    }
  }

  void read_merges(const json& merges) {
    if (!merges.is_array()) fail("\"merges\" is not a list", damaged);
    StringMap<std::int32_t> ids;
    for (std::size_t id = 0; id < definition_.tokens.size(); ++id) {
      if (!definition_.special[id]) ids.emplace(definition_.tokens[id], static_cast<std::int32_t>(id));
    }
    const auto find = [&](const std::string& bytes) {
      const auto found = ids.find(bytes);
      if (found == ids.end()) {
        fail(fmt::format("merge {} names \"{}\", which is no token", definition_.merges.size(), to_chars(bytes)),
             damaged);
      }
      return found->second;
    };
    for (const json& merge : merges) {
      const auto [left, right] = sides_of(merge);
      definition_.merges.push_back({find(left), find(right), find(left + right)});
    }
  }

  // "a b", or ["a", "b"] in newer files.
  std::pair<std::string, std::string> sides_of(const json& merge) const {
    const std::size_t number = definition_.merges.size();
    std::string left;
    std::string right;
    if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
      left = merge[0].get<std::string>();
      right = merge[1].get<std::string>();
    } else if (merge.is_string()) {
      const auto text = merge.get<std::string>();
      const std::size_t space = text.find(' ');
      if (space == std::string::npos) fail(fmt::format("merge {} is not a pair", number), damaged);
      left = text.substr(0, space);
      right = text.substr(space + 1);
    } else {
      fail(fmt::format("merge {} is not a pair", number), damaged);
    }
    std::optional<std::string> left_bytes = to_bytes(left);
    std::optional<std::string> right_bytes = to_bytes(right);
    if (!left_bytes || !right_bytes || left_bytes->empty() || right_bytes->empty()) {
      fail(fmt::format("merge {} is not written in byte-level characters", number), damaged);
    }
    return {*std::move(left_bytes), *std::move(right_bytes)};
  }

  std::int32_t find_end_of_text() const {
    for (const std::string_view name :
         {end_of_text_name, std::string_view("<|end_of_text|>"), std::string_view("</s>"), std::string_view("<eos>")}) {
      for (std::size_t id = 0; id < definition_.tokens.size(); ++id) {
        if (definition_.special[id] && definition_.tokens[id] == name) return static_cast<std::int32_t>(id);
      }
    }
    fail("no end-of-text token", "add one of <|endoftext|>, <|end_of_text|>, </s>, <eos> to its added_tokens");
  }

  std::string source_;
  BpeDefinition definition_;
  std::vector<bool> taken_;
  StringMap<int> added_;
};

ordered_json pre_tokenizer_json(SplitPattern pattern) {
  ordered_json bytes = {
      {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  if (pattern == SplitPattern::gpt2) return bytes;  // its expression is ByteLevel's own
  bytes["use_regex"] = false;
  const ordered_json split = {
      {"type", "Split"}, {"pattern", {{"Regex", regex_of(pattern)}}}, {"behavior", "Isolated"}, {"invert", false}};
  return {{"type", "Sequence"}, {"pretokenizers", ordered_json::array({split, bytes})}};
}

}  // namespace

std::string BpeTokenizer::to_json() const {
  const BpeDefinition& d = definition_;
  ordered_json added = ordered_json::array();
  ordered_json::object_t vocab;
  for (std::size_t id = 0; id < d.tokens.size(); ++id) {
    if (d.special[id]) {
      added.push_back({{"id", id},
                       {"content", d.tokens[id]},
                       {"single_word", false},
                       {"lstrip", false},
                       {"rstrip", false},
                       {"normalized", false},
                       {"special", true}});
    } else {
      vocab.push_back({to_chars(d.tokens[id]), id});  // not emplace: it would search for the key every time
    }
  }
  ordered_json merges = ordered_json::array();
  for (const BpeMerge& merge : d.merges) {
    merges.push_back(to_chars(d.tokens[static_cast<std::size_t>(merge.left)]) + " " +
                     to_chars(d.tokens[static_cast<std::size_t>(merge.right)]));
  }
  ordered_json file;
  file["version"] = "1.0";
  file["truncation"] = nullptr;
  file["padding"] = nullptr;
  file["added_tokens"] = std::move(added);
  file["normalizer"] = d.note.empty() ? ordered_json() : ordered_json{{"type", "NFC"}};
  file["pre_tokenizer"] = pre_tokenizer_json(d.pattern);
  file["post_processor"] = nullptr;
  file["decoder"] = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}};
  file["model"] = {{"type", "BPE"},
                   {"dropout", nullptr},
                   {"unk_token", nullptr},
                   {"continuing_subword_prefix", nullptr},
                   {"end_of_word_suffix", nullptr},
                   {"fuse_unk", false},
                   {"byte_fallback", false},
                   {"ignore_merges", d.whole_pieces == WholePieces::take}};
  file["model"]["vocab"] = std::move(vocab);
  file["model"]["merges"] = std::move(merges);
  return file.dump(1) + "\n";
}

std::unique_ptr<BpeTokenizer> parse_bpe(std::string_view text, std::string_view source) {
  json file;
  try {
    file = json::parse(text);
  } catch (const json::exception& error) {
    throw Error(fmt::format("{}: not JSON: {}", source, error.what()), damaged);
  }
  return std::make_unique<BpeTokenizer>(TokenizerReader(source).read(file), source);
}

std::unique_ptr<BpeTokenizer> load_bpe(const std::filesystem::path& path) {
  return parse_bpe(read_file(path, max_file_bytes), path.string());
}

}  // namespace quaver
