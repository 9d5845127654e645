#include <algorithm>
#include <cstdint>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <optional>

#include "data/bpe.h"
#include "data/byte_chars.h"
#include "io/file_io.h"
#include "quaver/error.h"

namespace quaver {
namespace {

using nlohmann::json;

constexpr std::uint64_t max_file_bytes = 256u << 20;
constexpr std::int64_t max_tokens = 1 << 24;
constexpr std::size_t max_added_bytes = 4096;
constexpr const char* damaged = "the file is damaged or not a tokenizer.json; get it again";
constexpr const char* unsupported = "use a BPE tokenizer such as GPT-2's, Llama's, Mistral's, Qwen's or SmolLM2's";
constexpr std::string_view space_sign = "\u2581";

// Reads one tokenizer.json; `source_` names it in every error.
class TokenizerReader {
 public:
  explicit TokenizerReader(std::string_view source) : source_(source) {}

  BpeDefinition read(const json& file) {
    if (!file.is_object()) fail("does not hold an object", damaged);
    const json& model = member(file, "model");
    check_model(model);
    read_normalizer(file);
    read_pre_tokenizer(file);
    check_decoder(file);
    read_tokens(member(model, "vocab"), file);
    if (is_marked()) check_marked(model);
    read_merges(member(model, "merges"));
    definition_.end_of_text = find_end_of_text();
    read_post_processor(file);
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

  [[noreturn]] void refuse(const char* part, const json& step) const {
    fail(fmt::format("the {} \"{}\" is not supported", part, text_of(step, "type")), unsupported);
  }

  // The steps of a part of the file: none, one, or those of a sequence, listed under `key`.
  std::vector<const json*> steps_of(const json& file, const char* part, const char* key) const {
    if (!has(file, part)) return {};
    const json& one = file.at(part);
    if (!one.is_object()) fail(fmt::format("\"{}\" is not an object", part), damaged);
    if (text_of(one, "type") != "Sequence") return {&one};
    const json& list = member(one, key);
    if (!list.is_array()) fail(fmt::format("\"{}\" is not a list", key), damaged);
    std::vector<const json*> steps;
    for (const json& step : list) {
      if (!step.is_object()) fail(fmt::format("a step of \"{}\" is not an object", part), damaged);
      steps.push_back(&step);
    }
    return steps;
  }

  // NFC, or what SentencePiece's form of BPE begins with: Prepend of ▁, and Replace of spaces by it.
  void read_normalizer(const json& file) {
    const std::vector<const json*> steps = steps_of(file, "normalizer", "normalizers");
    if (steps.size() == 2 && text_of(*steps[0], "prepend") == space_sign && replaces_spaces(*steps[1])) {
      definition_.space_mark = SpaceMark::prepend;
      return;
    }
    for (const json* step : steps) {
      if (text_of(*step, "type") != "NFC") refuse("normalizer", *step);
      definition_.normalization = TextNormalization::nfc;
    }
  }

  bool replaces_spaces(const json& step) const {
    return text_of(step, "type") == "Replace" && has(step, "pattern") && text_of(step.at("pattern"), "String") == " " &&
           text_of(step, "content") == space_sign;
  }

  bool is_marked() const { return definition_.space_mark != SpaceMark::none; }

  // Words can be merged one by one where no token goes on behind the mark of the next.
  void check_marked(const json& model) {
    if (!flag_of(model, "byte_fallback", false)) fail("neither ByteLevel nor \"byte_fallback\" is set", unsupported);
    if (definition_.whole_pieces == WholePieces::take) fail("\"ignore_merges\" without ByteLevel", unsupported);
    for (std::size_t id = 0; id < definition_.tokens.size(); ++id) {
      const std::string_view token = definition_.tokens[id];
      const bool merged = definition_.in_model[id] && !token.empty();
      if (merged && piece_end(SplitPattern::marked_words, token, 0) < token.size()) return;
    }
    definition_.splits = {SplitPattern::marked_words};
  }

  void read_metaspace(const json& step) {
    const std::string scheme = has(step, "prepend_scheme") ? text_of(step, "prepend_scheme") : "always";
    if (text_of(step, "replacement") != space_sign) fail("the mark of Metaspace is not \u2581", unsupported);
    if (flag_of(step, "split", true)) fail("Metaspace splits the text", unsupported);
    if (definition_.normalization != TextNormalization::none) fail("Metaspace follows a normalizer", unsupported);
    definition_.space_mark = scheme == "first"    ? SpaceMark::first
                             : scheme == "always" ? SpaceMark::always
                             : scheme == "never"  ? SpaceMark::never
                                                  : SpaceMark::none;
    if (!is_marked()) fail(fmt::format("the \"prepend_scheme\" \"{}\" is not supported", scheme), unsupported);
  }

  // ByteLevel turns bytes into characters: nothing can be cut by their classes after it.
  void read_pre_tokenizer(const json& file) {
    definition_.splits.clear();
    const std::vector<const json*> steps = steps_of(file, "pre_tokenizer", "pretokenizers");
    if (is_marked() && steps.empty()) return;
    if (is_marked()) refuse("pre-tokenizer after Prepend", *steps.front());
    if (steps.size() == 1 && text_of(*steps[0], "type") == "Metaspace") return read_metaspace(*steps[0]);
    bool bytes = false;
    for (const json* step : steps) {
      const std::string type = text_of(*step, "type");
      if (bytes) fail(fmt::format("the pre-tokenizer has \"{}\" after ByteLevel", type), unsupported);
      if (type == "ByteLevel") {
        bytes = true;
        if (flag_of(*step, "add_prefix_space", true)) fail("\"add_prefix_space\" is set", unsupported);
        if (flag_of(*step, "use_regex", true)) definition_.splits.push_back(SplitPattern::gpt2);
      } else if (type == "Digits") {
        const bool each = flag_of(*step, "individual_digits", false);
        definition_.splits.push_back(each ? SplitPattern::digit : SplitPattern::digits);
      } else if (type == "Split") {
        definition_.splits.push_back(split_of(*step));
      } else {
        refuse("pre-tokenizer", *step);
      }
    }
    if (!bytes) fail("the pre-tokenizer has no ByteLevel", unsupported);
  }

  // All that is between two matches is isolated, too. Where matches leave nothing between them, \"Removed\" of the
  // inverted pattern removes nothing.
  SplitPattern split_of(const json& step) const {
    const json& pattern = member(step, "pattern");
    if (!pattern.is_object() || !has(pattern, "Regex")) fail("a Split has no regular expression", unsupported);
    const std::string regex = text_of(pattern, "Regex");
    const std::optional<SplitPattern> known = pattern_of(regex);
    if (!known) fail(fmt::format("the split pattern \"{}\" is not supported", regex), unsupported);
    const std::string behavior = text_of(step, "behavior");
    const bool inverted = flag_of(step, "invert", false);
    const bool isolates = behavior == "Isolated" || (behavior == "Removed" && inverted && matches_everything(*known));
    if (!isolates) {
      fail(fmt::format("the split behavior \"{}\"{} is not supported", behavior, inverted ? ", inverted," : ""),
           unsupported);
    }
    return *known;
  }

  void check_decoder(const json& file) const {
    const std::vector<std::string> known =
        is_marked() ? std::vector<std::string>{"Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"}
                    : std::vector<std::string>{"ByteLevel"};
    for (const json* step : steps_of(file, "decoder", "decoders")) {
      if (std::ranges::find(known, text_of(*step, "type")) == known.end()) refuse("decoder", *step);
    }
  }

  // ByteLevel changes offsets alone, which nobody asks for here.
  void read_post_processor(const json& file) {
    for (const json* step : steps_of(file, "post_processor", "processors")) {
      const std::string type = text_of(*step, "type");
      if (type == "TemplateProcessing") {
        read_template(*step);
      } else if (type != "ByteLevel") {
        refuse("post-processor", *step);
      }
    }
  }

  // Tokens before the text become the prefix. Of those after it, only end-of-text is known: every document has it.
  void read_template(const json& step) {
    const json& single = member(step, "single");
    if (!single.is_array()) fail("\"single\" is not a list", damaged);
    bool behind_text = false;
    for (const json& piece : single) {
      if (!piece.is_object()) fail("a piece of \"single\" is not an object", damaged);
      if (has(piece, "Sequence")) {
        if (behind_text) fail("the post-processor repeats the text", unsupported);
        behind_text = true;
        continue;
      }
      const std::string name = text_of(member(piece, "SpecialToken"), "id");
      for (const std::int32_t id : template_ids(step, name)) {
        if (!behind_text) {
          definition_.prefix.push_back(id);
        } else if (id != definition_.end_of_text) {
          fail(fmt::format("the post-processor puts \"{}\" behind a text", name), unsupported);
        }
      }
    }
    if (!behind_text) fail("the post-processor leaves out the text", unsupported);
  }

  std::vector<std::int32_t> template_ids(const json& step, const std::string& name) const {
    const json& tokens = member(step, "special_tokens");
    if (!tokens.is_object() || !tokens.contains(name) || !tokens.at(name).is_object()) {
      fail(fmt::format("the post-processor does not define \"{}\"", name), damaged);
    }
    const json& ids = member(tokens.at(name), "ids");
    if (!ids.is_array()) fail(fmt::format("the ids of \"{}\" are not a list", name), damaged);
    std::vector<std::int32_t> found;
    for (const json& id : ids) found.push_back(static_cast<std::int32_t>(id_of(id, name)));
    return found;
  }

  // With a token for every byte there is nothing unknown: byte_fallback, unk_token and fuse_unk have no effect.
  void check_model(const json& model) {
    if (!model.is_object()) fail("\"model\" is not an object", damaged);
    const std::string type = text_of(model, "type");
    if (type != "BPE" && !type.empty()) fail(fmt::format("the model is {}, not BPE", type), unsupported);
    for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
      if (!text_of(model, key).empty()) fail(fmt::format("\"{}\" is set", key), unsupported);
    }
    if (has(model, "dropout") && model.at("dropout") != 0) fail("\"dropout\" is set", unsupported);
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

  void place(std::size_t id, std::string bytes, bool in_model) {
    if (taken_[id]) fail(fmt::format("two tokens have the id {}", id), damaged);
    taken_[id] = true;
    definition_.tokens[id] = std::move(bytes);
    definition_.in_model[id] = in_model;
  }

  // As many ids as distinct tokens, each inside that count and used once, leave no gap.
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
    definition_.in_model.resize(count);
    taken_.resize(count);
    read_added(added, vocab);
    for (const auto& [content, id] : vocab.items()) {
      std::optional<std::string> bytes = bytes_of(content);
      const bool is_added = added_.contains(content);
      if (!bytes && !is_added) {
        fail(fmt::format("the token \"{}\" is not written in byte-level characters", content), unsupported);
      }
      const bool in_model = bytes.has_value();
      place(id_of(id, content), in_model ? *std::move(bytes) : content, in_model);
    }
  }

  // A token as the model merges it; nothing where it cannot.
  std::optional<std::string> bytes_of(const std::string& content) const {
    return is_marked() ? std::optional(content) : from_byte_chars(content);
  }

  void read_added(const json& added, const json& vocab) {
    for (const json& entry : added) {
      AddedToken token = added_token(entry);
      const std::size_t id = id_of(member(entry, "id"), token.content);
      token.id = static_cast<std::int32_t>(id);
      const auto known = vocab.find(token.content);
      if (!added_.emplace(token.content, 0).second) {
        fail(fmt::format("\"{}\" is added twice", token.content), damaged);
      }
      if (known != vocab.end() && *known != entry.at("id")) {
        fail(fmt::format("\"{}\" has two ids", token.content), damaged);
      }
      if (known == vocab.end()) place(id, token.content, false);
      definition_.added.push_back(std::move(token));
    }
  }

  AddedToken added_token(const json& entry) const {
    AddedToken token;
    token.content = text_of(entry, "content");
    if (token.content.size() > max_added_bytes) {
      fail(fmt::format("an added token has {} bytes", token.content.size()), damaged);
    }
    const bool special = flag_of(entry, "special", true);
    const bool left = flag_of(entry, "lstrip", false);
    const bool right = flag_of(entry, "rstrip", false);
    token.role = special ? TokenRole::special : TokenRole::ordinary;
    token.matched = flag_of(entry, "normalized", !special) ? MatchedText::normalized : MatchedText::raw;
    token.words = flag_of(entry, "single_word", false) ? WordRule::whole_word : WordRule::anywhere;
    if (left) token.space = right ? TakenSpace::both : TakenSpace::left;
    if (!left && right) token.space = TakenSpace::right;
    return token;
  }

  void read_merges(const json& merges) {
    if (!merges.is_array()) fail("\"merges\" is not a list", damaged);
    StringMap<std::int32_t> ids;
    for (std::size_t id = 0; id < definition_.tokens.size(); ++id) {
      if (definition_.in_model[id]) ids.emplace(definition_.tokens[id], static_cast<std::int32_t>(id));
    }
    const auto find = [&](const std::string& bytes) {
      const auto found = ids.find(bytes);
      if (found == ids.end()) {
        fail(fmt::format("merge {} names \"{}\", which is no token", definition_.merges.size(), to_byte_chars(bytes)),
             damaged);
      }
      return found->second;
    };
    for (const json& merge : merges) {
      if (is_comment(merge)) continue;
      const auto [left, right] = sides_of(merge);
      definition_.merges.push_back({find(left), find(right), find(left + right)});
    }
  }

  // What older files took over from merges.txt; Hugging Face passes over it.
  static bool is_comment(const json& merge) {
    return merge.is_string() && merge.get_ref<const std::string&>().starts_with("#version");
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
    std::optional<std::string> left_bytes = bytes_of(left);
    std::optional<std::string> right_bytes = bytes_of(right);
    if (!left_bytes || !right_bytes || left_bytes->empty() || right_bytes->empty()) {
      fail(fmt::format("merge {} is not written in byte-level characters", number), damaged);
    }
    return {*std::move(left_bytes), *std::move(right_bytes)};
  }

  std::int32_t find_end_of_text() const {
    for (const std::string_view name :
         {end_of_text_name, std::string_view("<|end_of_text|>"), std::string_view("</s>"), std::string_view("<eos>")}) {
      for (const AddedToken& token : definition_.added) {
        if (token.content == name) return token.id;
      }
    }
    fail("no end-of-text token", "add one of <|endoftext|>, <|end_of_text|>, </s>, <eos> to its added_tokens");
  }

  std::string source_;
  BpeDefinition definition_;
  std::vector<bool> taken_;
  StringMap<int> added_;
};

}  // namespace

std::unique_ptr<BpeTokenizer> parse_bpe(std::string_view text, std::string_view source) {
  json file;
  try {
    file = json::parse(text);
  } catch (const json::exception& error) {
    throw Error(fmt::format("{}: not JSON: {}", source, error.what()), damaged);
  }
  return std::make_unique<BpeTokenizer>(TokenizerReader(source).read(file), source, std::string(text));
}

std::unique_ptr<BpeTokenizer> load_bpe(const std::filesystem::path& path) {
  return parse_bpe(read_file(path, max_file_bytes), path.string());
}

}  // namespace quaver
