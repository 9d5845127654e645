#include "data/examples.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/documents.h"
#include "quaver/error.h"

namespace quaver {
namespace {

using nlohmann::json;

constexpr std::size_t longest_line = std::size_t{8} << 20;
constexpr int deepest = 8;

Speaker speaker_of(const std::string& name) {
  if (name == "system") return Speaker::system;
  if (name == "user") return Speaker::user;
  if (name == "assistant") return Speaker::assistant;
  if (name == "tool") return Speaker::tool;
  throw Error("field \"role\" is none of system, user, assistant and tool", "rename the role, or delete the line");
}

// An object of a line, which is to have one of these forms.
class Fields {
 public:
  Fields(json object, const char* forms) : object_(std::move(object)), forms_(forms) {}

  static Fields parse(std::string_view line, const char* forms) {
    const auto refuse_deep = [&](int depth, json::parse_event_t, const json&) {
      if (depth > deepest) throw Error(fmt::format("nested deeper than {} levels", deepest), forms);
      return true;
    };
    try {
      json object = json::parse(line, refuse_deep);
      if (!object.is_object()) throw Error("not a JSON object", forms);
      return {std::move(object), forms};
    } catch (const json::parse_error& error) {
      throw Error(fmt::format("not valid JSON, or not UTF-8, at byte {}", error.byte), "mend the line, or delete it");
    } catch (const json::exception&) {  // such as a number beyond all bounds
      throw Error("not valid JSON", "mend the line, or delete it");
    }
  }

  bool has(const char* field) const { return object_.contains(field); }

  std::string text(const char* field) const {
    const auto found = object_.find(field);
    if (found == object_.end()) throw Error(fmt::format("no field \"{}\"", field), forms_);
    if (!found->is_string()) throw Error(fmt::format("field \"{}\" is not a string", field), forms_);
    return found->get<std::string>();
  }

  // What the loss is taken of.
  std::string learned_text(const char* field) const {
    std::string learned = text(field);
    if (learned.empty()) {
      throw Error(fmt::format("field \"{}\" is empty: nothing has a loss", field), "delete the line");
    }
    return learned;
  }

  std::vector<ChatMessage> messages() const {
    const json& list = object_.at("messages");
    if (!list.is_array()) throw Error("field \"messages\" is not a list", forms_);
    std::vector<ChatMessage> messages;
    for (const json& entry : list) {
      if (!entry.is_object()) throw Error("a message is not a JSON object", forms_);
      const Fields fields(entry, forms_);
      const Speaker speaker = speaker_of(fields.text("role"));
      const bool learned = speaker == Speaker::assistant;
      messages.push_back({speaker, learned ? fields.learned_text("content") : fields.text("content")});
    }
    return messages;
  }

 private:
  json object_;
  const char* forms_;
};

constexpr const char* example_forms =
    "an example has \"messages\" (a list of {\"role\", \"content\"}), or \"prompt\" and \"completion\", or \"text\"";
constexpr const char* prompt_forms = "a prompt has \"messages\" (a list of {\"role\", \"content\"}), or \"prompt\"";

std::vector<ChatMessage> answered_messages(const Fields& example) {
  std::vector<ChatMessage> messages = example.messages();
  const auto learned = [](const ChatMessage& message) { return message.speaker == Speaker::assistant; };
  if (std::ranges::none_of(messages, learned)) {
    throw Error("no message of the assistant: nothing has a loss", "delete the line");
  }
  return messages;
}

std::vector<std::int32_t> tokenize_completion(std::string_view prompt, std::string_view completion,
                                              const Tokenizer& tokenizer) {
  std::vector<std::int32_t> tokens(tokenizer.prefix().begin(), tokenizer.prefix().end());
  tokenizer.encode(prompt, tokens);
  if (tokens.empty()) tokens.push_back(tokenizer.end_of_text());  // as training begins a document
  for (std::int32_t& token : tokens) token = ~token;
  tokenizer.encode(completion, tokens);
  tokens.push_back(tokenizer.end_of_text());
  return tokens;
}

}  // namespace

void Examples::append(std::span<const std::int32_t> example) {
  if (example.size() > most_tokens - tokens.size()) {
    throw Error(fmt::format("the examples have more than {} tokens, and they are kept in memory", most_tokens),
                "fine-tune on fewer of them, or make a data set of their text with `quaver data`");
  }
  tokens.insert(tokens.end(), example.begin(), example.end());
  ends.push_back(tokens.size());
}

std::vector<std::int32_t> tokenize_example(std::string_view line, const Tokenizer& tokenizer,
                                           ChatTemplate chat_template) {
  const Fields example = Fields::parse(line, example_forms);
  if (example.has("messages")) return tokenize_chat(answered_messages(example), tokenizer, chat_template);
  if (example.has("prompt") || example.has("completion")) {
    return tokenize_completion(example.text("prompt"), example.learned_text("completion"), tokenizer);
  }
  if (!example.has("text")) throw Error("none of the fields of an example", example_forms);
  return tokenize_completion("", example.learned_text("text"), tokenizer);
}

Prompt parse_prompt(std::string_view line) {
  const Fields prompt = Fields::parse(line, prompt_forms);
  if (!prompt.has("messages")) return {.text = prompt.text("prompt")};
  Prompt chat{.text = {}, .messages = prompt.messages()};
  if (chat.messages.empty() || chat.messages.back().speaker == Speaker::assistant) {
    throw Error("no message to answer", "let the last of the messages be the user's");
  }
  return chat;
}

Examples read_examples(const std::filesystem::path& path, const Tokenizer& tokenizer, ChatTemplate chat_template) {
  std::error_code failure;
  std::ifstream in;
  if (std::filesystem::is_regular_file(path, failure)) in.open(path, std::ios::binary);
  if (!in.is_open()) {
    throw Error(fmt::format("{} is not a file that can be read", path.string()),
                "set data.path to a file of JSON lines, one example per line");
  }
  Examples examples;
  read_lines(in, path.string(), longest_line, [&](const TextLine& line) {
    try {
      examples.append(tokenize_example(line.text, tokenizer, chat_template));
    } catch (const Error& error) {
      throw Error(fmt::format("{}:{}: {}", path.string(), line.number, error.what()), error.remedy());
    }
  });
  if (examples.count() == 0) throw Error(fmt::format("{} has no examples", path.string()), example_forms);
  return examples;
}

std::pair<Examples, Examples> split_examples(const Examples& all, double valid_share) {
  std::pair<Examples, Examples> parts;
  const std::size_t count = all.count();
  const auto wanted = static_cast<std::size_t>(std::lround(valid_share * static_cast<double>(count)));
  const std::size_t valid = std::max<std::size_t>(1, wanted);
  for (std::size_t i = 0; i < count; ++i) {
    const bool is_valid = (i + 1) * valid / count > i * valid / count;
    (is_valid ? parts.second : parts.first).append(all.at(i));
  }
  if (parts.first.count() > 0 && parts.second.count() > 0) return parts;
  throw Error(fmt::format("{} cannot be divided for training and validation",
                          all.count() == 1 ? "1 example" : fmt::format("{} examples", all.count())),
              "set data.valid_share = 0, or use more examples");
}

}  // namespace quaver
