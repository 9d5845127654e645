#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "cli/named_model.h"
#include "cli/prompts.h"
#include "cli/verbs.h"
#include "quaver/error.h"
#include "train/run.h"
#include "train/sampling.h"
#include "train/stopwatch.h"

namespace quaver {

namespace {

constexpr std::size_t most_texts = 1'000'000;

std::string_view end_name(SampleEnd end) {
  switch (end) {
    case SampleEnd::length:
      return "length";
    case SampleEnd::end_of_text:
      return "end-of-text";
    case SampleEnd::end_of_turn:
      return "end-of-turn";
    case SampleEnd::stop_string:
      break;
  }
  return "stop";
}

void require_text(const OpenedRun& run) {
  const std::string name = name_of(run);
  if (run.data.train_images != nullptr) {
    throw Error(name + ": its model classifies images, so there is no text to sample",
                "sample a run that was trained on text, or classify with `quaver eval`");
  }
  if (run.data.tokenizer == nullptr) {
    throw Error(name + ": its data has no tokenizer, so there is no text to sample",
                "sample a run that was trained on text, or set data.tokenizer");
  }
}

std::vector<Prompt> prompts_of(const SampleArguments& arguments) {
  std::vector<Prompt> prompts =
      arguments.prompts.empty() ? std::vector<Prompt>{{.text = arguments.prompt}} : read_prompts(arguments.prompts);
  if (!arguments.chat) return prompts;
  if (arguments.prompts.empty() && arguments.prompt.empty()) {
    throw Error("--chat answers what a user says, and there is no prompt", "give --prompt TEXT or --prompts FILE");
  }
  for (Prompt& prompt : prompts) {
    if (prompt.messages.empty()) prompt.messages.push_back({Speaker::user, prompt.text});
  }
  return prompts;
}

// --count of each prompt, with seeds one after the other.
std::vector<SampleOptions> texts_of(const SampleArguments& arguments, ChatTemplate chat_template) {
  const std::vector<Prompt> prompts = prompts_of(arguments);
  const auto count = static_cast<std::size_t>(arguments.count);
  if (count > most_texts / prompts.size()) {
    throw Error(fmt::format("{} prompts × {} are more than {} texts", prompts.size(), count, most_texts),
                "sample them in several runs");
  }
  std::vector<SampleOptions> texts;
  for (const Prompt& prompt : prompts) {
    for (std::size_t i = 0; i < count; ++i) {
      texts.push_back({.prompt = prompt,
                       .chat_template = chat_template,
                       .tokens = arguments.tokens,
                       .temperature = arguments.temperature,
                       .top_k = arguments.top_k,
                       .top_p = arguments.top_p,
                       .seed = arguments.seed + texts.size(),
                       .stop = arguments.stop});
    }
  }
  return texts;
}

void require_prompts_fit(const Config& config, const Tokenizer& tokenizer, const std::vector<SampleOptions>& texts,
                         Size count) {
  const Size context = config.train.context;
  for (std::size_t i = 0; i < texts.size(); i += static_cast<std::size_t>(count)) {
    const auto tokens = static_cast<Size>(opening_of(tokenizer, texts[i]).ids.size());
    if (tokens <= context) continue;
    const bool can_grow = context < config.model.context;
    throw Error(fmt::format("prompt {} of {} has {} tokens, and the model reads {} at a time",
                            i / static_cast<std::size_t>(count) + 1, texts.size() / static_cast<std::size_t>(count),
                            tokens, context),
                can_grow ? fmt::format("shorten it, or raise --train.context, to {} at most", config.model.context)
                         : "shorten it");
  }
}

// Texts in their order, whichever grows fastest: the first that has not ended is written as it grows.
class TextPrinter {
 public:
  TextPrinter(const std::vector<SampleOptions>& texts, const Tokenizer& tokenizer)
      : texts_(texts),
        tokenizer_(tokenizer),
        streams_(texts.size() == 1 || isatty(STDOUT_FILENO) != 0),
        waiting_(texts.size()),
        ended_(texts.size(), false) {
    begin();
  }

  void wrote(std::size_t number, std::string_view piece) {
    if (number != current_) {
      waiting_[number] += piece;
      return;
    }
    print(piece);
  }

  void ended(std::size_t number) {
    ended_[number] = true;
    while (current_ < texts_.size() && ended_[current_]) {
      print("\n");
      ++current_;
      begin();
    }
  }

 private:
  void begin() {
    if (current_ == texts_.size()) return;
    if (current_ > 0) print("────\n");
    print(opening_of(tokenizer_, texts_[current_]).shown);
    print(waiting_[current_]);
    waiting_[current_] = {};
  }

  void print(std::string_view text) const {
    fmt::print("{}", text);
    if (streams_) std::fflush(stdout);
  }

  const std::vector<SampleOptions>& texts_;
  const Tokenizer& tokenizer_;
  bool streams_;
  std::vector<std::string> waiting_;  // what texts behind the current one have so far
  std::vector<bool> ended_;
  std::size_t current_ = 0;
};

// The prompt, or the messages, as they were given.
nlohmann::ordered_json asked_of(const Prompt& prompt) {
  if (prompt.messages.empty()) return {{"prompt", prompt.text}};
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  for (const ChatMessage& message : prompt.messages) {
    messages.push_back({{"role", name_of(message.speaker)}, {"content", message.content}});
  }
  return {{"messages", messages}};
}

// One line per text, when it ends. Bytes that are no UTF-8 become U+FFFD.
void print_json(std::size_t number, const SampleOptions& options, const SampledText& text) {
  nlohmann::ordered_json line{{"number", number}, {"seed", options.seed}};
  line.update(asked_of(options.prompt));
  line.update({{"text", text.text},
               {"prompt_tokens", text.prompt_tokens},
               {"tokens", text.tokens},
               {"end", end_name(text.end)}});
  fmt::print("{}\n", line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  std::fflush(stdout);
}

}  // namespace

int sample_verb(const SampleArguments& arguments) {
  const auto run = open_named({arguments.run, arguments.step, arguments.settings});
  require_text(*run);
  const Tokenizer& tokenizer = *run->data.tokenizer;
  const Config& config = run->trainer->config();
  const std::vector<SampleOptions> texts = texts_of(arguments, config.data.chat_template);
  require_prompts_fit(config, tokenizer, texts, arguments.count);
  Size tokens = 0;
  const bool json = arguments.output == Output::json;
  std::optional<TextPrinter> printer;
  if (!json) printer.emplace(texts, tokenizer);
  SampleObserver observer;
  if (!json) observer.wrote = [&](std::size_t number, std::string_view piece) { printer->wrote(number, piece); };
  observer.ended = [&](std::size_t number, const SampledText& text) {
    tokens += text.tokens;
    json ? print_json(number, texts[number], text) : printer->ended(number);
  };
  const double seconds = seconds_of([&] { sample_texts(*run->trainer, tokenizer, texts, observer); });
  fmt::print(stderr, "quaver: {} tokens in {:.2f} s, {:.1f} tokens/s\n", tokens, seconds,
             static_cast<double>(tokens) / seconds);
  return 0;
}

}  // namespace quaver
