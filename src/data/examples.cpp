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

constexpr const char* forms =
    "an example has \"messages\" (a list of {\"role\", \"content\"}), or \"prompt\" and \"completion\", or \"text\"";

json parse_line(std::string_view line) {
  const auto refuse_deep = [](int depth, json::parse_event_t, const json&) {
    if (depth > deepest) throw Error(fmt::format("nested deeper than {} levels", deepest), forms);
    return true;
  };
  try {
    json object = json::parse(line, refuse_deep);
    if (!object.is_object()) throw Error("not a JSON object", forms);
    return object;
  } catch (const json::parse_error& error) {
    throw Error(fmt::format("not valid JSON, or not UTF-8, at byte {}", error.byte), "mend the line, or delete it");
  } catch (const json::exception&) {  // such as a number beyond all bounds
    throw Error("not valid JSON", "mend the line, or delete it");
  }
}

std::string string_at(const json& object, const char* field) {
  const auto found = object.find(field);
  if (found == object.end()) throw Error(fmt::format("no field \"{}\"", field), forms);
  if (!found->is_string()) throw Error(fmt::format("field \"{}\" is not a string", field), forms);
  return found->get<std::string>();
}

// What the loss is taken of.
std::string learned_text(const json& object, const char* field) {
  std::string text = string_at(object, field);
  if (text.empty()) throw Error(fmt::format("field \"{}\" is empty: nothing has a loss", field), "delete the line");
  return text;
}

Speaker speaker_of(const std::string& name) {
  if (name == "system") return Speaker::system;
  if (name == "user") return Speaker::user;
  if (name == "assistant") return Speaker::assistant;
  if (name == "tool") return Speaker::tool;
  throw Error("field \"role\" is none of system, user, assistant and tool", "rename the role, or delete the line");
}

std::vector<ChatMessage> messages_of(const json& list) {
  if (!list.is_array()) throw Error("field \"messages\" is not a list", forms);
  std::vector<ChatMessage> messages;
  bool answered = false;
  for (const json& entry : list) {
    if (!entry.is_object()) throw Error("a message is not a JSON object", forms);
    ChatMessage& message = messages.emplace_back();
    message.speaker = speaker_of(string_at(entry, "role"));
    message.content =
        message.speaker == Speaker::assistant ? learned_text(entry, "content") : string_at(entry, "content");
    answered = answered || message.speaker == Speaker::assistant;
  }
  if (!answered) throw Error("no message of the assistant: nothing has a loss", "delete the line");
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
  const json object = parse_line(line);
  if (const auto list = object.find("messages"); list != object.end()) {
    return tokenize_chat(messages_of(*list), tokenizer, chat_template);
  }
  if (object.contains("prompt") || object.contains("completion")) {
    return tokenize_completion(string_at(object, "prompt"), learned_text(object, "completion"), tokenizer);
  }
  if (!object.contains("text")) throw Error("none of the fields of an example", forms);
  return tokenize_completion("", learned_text(object, "text"), tokenizer);
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
  if (examples.count() == 0) throw Error(fmt::format("{} has no examples", path.string()), forms);
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
