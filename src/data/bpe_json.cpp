// A tokenizer as Hugging Face's tokenizer.json.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "data/bpe.h"
#include "data/byte_chars.h"

namespace quaver {
namespace {

using nlohmann::ordered_json;

ordered_json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

ordered_json pre_tokenizer_json(const std::vector<SplitPattern>& splits) {
  if (splits == std::vector{SplitPattern::gpt2}) return byte_level(true);  // its expression is ByteLevel's own
  ordered_json steps = ordered_json::array();
  for (const SplitPattern pattern : splits) {
    steps.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", regex_of(pattern)}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  steps.push_back(byte_level(false));
  return {{"type", "Sequence"}, {"pretokenizers", std::move(steps)}};
}

ordered_json added_json(const AddedToken& token) {
  return {{"id", token.id},
          {"content", token.content},
          {"single_word", token.words == WordRule::whole_word},
          {"lstrip", token.space == TakenSpace::left || token.space == TakenSpace::both},
          {"rstrip", token.space == TakenSpace::right || token.space == TakenSpace::both},
          {"normalized", token.matched == MatchedText::normalized},
          {"special", token.role == TokenRole::special}};
}

// A text as it is, with the tokens before it that it begins with.
ordered_json post_processor_json(const BpeDefinition& definition) {
  if (definition.prefix.empty()) return nullptr;
  ordered_json single = ordered_json::array();
  ordered_json tokens = ordered_json::object();
  for (const std::int32_t id : definition.prefix) {
    const std::string& name = definition.tokens[static_cast<std::size_t>(id)];
    single.push_back({{"SpecialToken", {{"id", name}, {"type_id", 0}}}});
    tokens[name] = {{"id", name}, {"ids", {id}}, {"tokens", {name}}};
  }
  ordered_json pair = single;
  single.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  pair.push_back({{"Sequence", {{"id", "A"}, {"type_id", 0}}}});
  pair.push_back({{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
  return {{"type", "TemplateProcessing"},
          {"single", std::move(single)},
          {"pair", std::move(pair)},
          {"special_tokens", std::move(tokens)}};
}

}  // namespace

std::string BpeTokenizer::to_json() const { return json_.empty() ? render_json() : json_; }

std::string BpeTokenizer::render_json() const {
  const BpeDefinition& d = definition_;
  ordered_json added = ordered_json::array();
  for (const AddedToken& token : d.added) added.push_back(added_json(token));
  ordered_json::object_t vocab;
  for (std::size_t id = 0; id < d.tokens.size(); ++id) {
    // not emplace: it would search for the key every time
    if (d.in_model[id]) vocab.push_back({to_byte_chars(d.tokens[id]), id});
  }
  ordered_json merges = ordered_json::array();
  for (const BpeMerge& merge : d.merges) {
    merges.push_back(to_byte_chars(d.tokens[static_cast<std::size_t>(merge.left)]) + " " +
                     to_byte_chars(d.tokens[static_cast<std::size_t>(merge.right)]));
  }
  ordered_json file;
  file["version"] = "1.0";
  file["truncation"] = nullptr;
  file["padding"] = nullptr;
  file["added_tokens"] = std::move(added);
  file["normalizer"] = d.normalization == TextNormalization::none ? ordered_json() : ordered_json{{"type", "NFC"}};
  file["pre_tokenizer"] = pre_tokenizer_json(d.splits);
  file["post_processor"] = post_processor_json(d);
  file["decoder"] = byte_level(true);
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

}  // namespace quaver
