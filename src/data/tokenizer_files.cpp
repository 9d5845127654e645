#include "data/tokenizer_files.h"

#include <nlohmann/json.hpp>

#include "data/bpe.h"
#include "io/file_io.h"

namespace quaver {
namespace {

std::string json_of(const Tokenizer& tokenizer) {
  std::string json = tokenizer.to_json();
  return json.empty() ? BpeTrainer().train(tokenizer.vocab_size())->to_json() : json;  // of no text: no merges
}

}  // namespace

void write_tokenizer_files(const Tokenizer& tokenizer, std::int64_t longest, const std::filesystem::path& folder) {
  const std::string end = tokenizer.text_of(tokenizer.end_of_text());
  const std::string begin = tokenizer.prefix().empty() ? end : tokenizer.text_of(tokenizer.prefix().front());
  const nlohmann::ordered_json special{{"bos_token", begin}, {"eos_token", end}};
  nlohmann::ordered_json config = special;
  config["clean_up_tokenization_spaces"] = false;
  config["model_max_length"] = longest;
  config["tokenizer_class"] = "PreTrainedTokenizerFast";
  make_folder(folder);
  write_file_atomically(folder / "tokenizer.json", json_of(tokenizer));
  write_file_atomically(folder / "tokenizer_config.json", config.dump(2) + "\n");
  write_file_atomically(folder / "special_tokens_map.json", special.dump(2) + "\n");
}

bool same_vocabulary(const Tokenizer& a, const Tokenizer& b) {
  if (a.vocab_size() != b.vocab_size()) return false;
  for (std::int32_t id = 0; id < a.vocab_size(); ++id) {
    if (a.text_of(id) != b.text_of(id)) return false;
  }
  return true;
}

}  // namespace quaver
