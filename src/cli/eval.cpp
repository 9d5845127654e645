#include <fmt/format.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "cli/named_model.h"
#include "cli/ranks.h"
#include "cli/verbs.h"
#include "comm/agreement.h"
#include "data/text_tokens.h"
#include "io/file_io.h"
#include "quaver/error.h"
#include "train/evaluation.h"
#include "train/rank_agreement.h"
#include "train/run.h"

namespace quaver {

namespace {

// "fp8-delayed", or "fp8-delayed (blocks.0.*: bf16)"
std::string text_of(const PrecisionConfig& precision) {
  std::string patterns;
  for (const auto& [pattern, recipe] : precision.layers) {
    patterns += fmt::format("{}{}: {}", patterns.empty() ? "" : ", ", pattern, recipe);
  }
  return precision.recipe + (patterns.empty() ? "" : " (" + patterns + ")");
}

void show_progress(Size done, Size total) {
  if (isatty(STDERR_FILENO) == 0) return;
  fmt::print(stderr, "\r\033[K");
  if (done < total) fmt::print(stderr, "evaluate: {} %", 100 * done / total);
}

// What the arguments name, where it can be evaluated: the text of --text, or nothing where it is the validation data.
std::optional<TextTokens> text_to_evaluate(const OpenedRun& run, const RunArguments& arguments) {
  const bool images = run.data.train_images != nullptr;
  if (!arguments.documents.empty() && images) {
    throw Error(name_of(run) + ": it was trained on images, which are no documents", "leave out --documents");
  }
  if (!arguments.text.empty() && images) {
    throw Error(name_of(run) + ": it was trained on images, so text has no meaning to it",
                "leave out --text, or evaluate a run that was trained on text");
  }
  if (arguments.text.empty()) {
    if (images && run.data.valid_images == nullptr) {
      throw Error(name_of(run) + ": there are no validation images", "put t10k-… files beside the others");
    }
    if (images || run.data.valid != nullptr) return std::nullopt;
    throw Error(name_of(run) + ": there is no validation data", "set data.valid_path, or name text with --text");
  }
  if (run.data.tokenizer == nullptr) {
    throw Error(name_of(run) + ": it was trained without a tokenizer, so text has no meaning to it",
                "evaluate a run that was trained on text");
  }
  return read_text_tokens(arguments.text, *run.data.tokenizer);
}

// What is evaluated by itself: a document, or a shard of the validation data.
struct NamedRows {
  std::vector<TokenRow> rows;
  std::vector<std::string> names;
};

NamedRows rows_to_evaluate(const OpenedRun& run, const std::optional<TextTokens>& text) {
  NamedRows named;
  if (!text) {
    named.rows = rows_of(*run.data.valid);
    for (const Shard& shard : run.data.valid->shards()) named.names.push_back(shard.path().string());
    return named;
  }
  for (const TokenizedDocument& document : text->documents) {
    named.rows.push_back(row_of(document.ids));
    named.names.push_back(document.name);
  }
  return named;
}

// Examples, all of them, or of text without an end as much as a run validates with.
Evaluation evaluate_batches(OpenedRun& run, const EvaluationOptions& options) {
  const TrainConfig& train = run.trainer->config().train;
  const bool ends = run.data.valid->windows(train.context) > 0;
  const Size batches = options.batches.value_or(ends ? std::numeric_limits<Size>::max() : train.eval_batches);
  const Validation result = run.trainer->validate(batches, options.ranks).value();
  return {result.loss * static_cast<double>(result.rows), static_cast<std::uint64_t>(result.rows), std::nullopt};
}

// Every validation image once, or of endless ones as many as a run validates with.
int evaluate_images(OpenedRun& run, const RunArguments& arguments, Communicator& ranks) {
  const bool endless = run.data.valid_images != nullptr && run.data.valid_images->images() == 0;
  const Size all = endless ? run.trainer->config().train.eval_batches : std::numeric_limits<Size>::max();
  const Validation result = run.trainer->validate(arguments.batches > 0 ? arguments.batches : all, ranks).value();
  if (!ranks.is_first()) return 0;
  if (arguments.output == Output::json) {
    const nlohmann::ordered_json metrics{{"step", run.trainer->steps_done()},
                                         {"recipe", run.config.precision.recipe},
                                         {"validation_loss", result.loss},
                                         {"validation_accuracy", result.accuracy.value()},
                                         {"images", result.rows}};
    fmt::print("{}\n", metrics.dump());
    return 0;
  }
  fmt::print("step {}, {}: validation loss {:.5f} nats per image, accuracy {:.2f}% ({} images)\n",
             run.trainer->steps_done(), text_of(run.config.precision), result.loss, 100 * result.accuracy.value(),
             result.rows);
  if (run.data.best_loss && run.data.best_accuracy) {
    fmt::print("best possible: {:.5f}, {:.2f}%\n", *run.data.best_loss, 100 * *run.data.best_accuracy);
  }
  return 0;
}

void add_metrics(const Evaluation& evaluation, const char* loss_name, nlohmann::ordered_json& metrics) {
  metrics[loss_name] = evaluation.loss();
  metrics["perplexity"] = evaluation.perplexity();
  if (const auto bits = evaluation.bits_per_byte()) metrics["bits_per_byte"] = *bits;
  metrics["tokens"] = evaluation.tokens;
  if (evaluation.bytes) metrics["bytes"] = *evaluation.bytes;
}

nlohmann::ordered_json metrics_of(const OpenedRun& run, const RunArguments& arguments, const Evaluation& evaluation) {
  const PrecisionConfig& precision = run.config.precision;
  nlohmann::ordered_json metrics{{"step", run.trainer->steps_done()}, {"recipe", precision.recipe}};
  if (!precision.layers.empty()) metrics["layers"] = precision.layers;
  add_metrics(evaluation, arguments.text.empty() ? "validation_loss" : "loss", metrics);
  return metrics;
}

// Documents of which --batches has left nothing have no entry.
void write_documents(const std::string& file, nlohmann::ordered_json metrics, const NamedRows& named,
                     const std::vector<Evaluation>& evaluations) {
  nlohmann::ordered_json& documents = metrics["documents"] = nlohmann::ordered_json::array();
  for (std::size_t i = 0; i < evaluations.size(); ++i) {
    if (evaluations[i].tokens == 0) continue;
    nlohmann::ordered_json document{{"name", named.names[i]}};
    add_metrics(evaluations[i], "loss", document);
    documents.push_back(std::move(document));
  }
  write_file_atomically(file, metrics.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void print_text(const OpenedRun& run, const RunArguments& arguments, const Evaluation& evaluation) {
  const auto bits = evaluation.bits_per_byte();
  fmt::print("step {}, {}: {} {:.5f} nats per token, perplexity {:.3f}{} ({} tokens{})\n", run.trainer->steps_done(),
             text_of(run.config.precision), arguments.text.empty() ? "validation loss" : "loss", evaluation.loss(),
             evaluation.perplexity(), bits ? fmt::format(", {:.5f} bits per byte", *bits) : "", evaluation.tokens,
             evaluation.bytes ? fmt::format(", {} bytes", *evaluation.bytes) : "");
  if (arguments.text.empty() && run.data.best_loss) fmt::print("best possible: {:.5f}\n", *run.data.best_loss);
}

int eval_as(Communicator& ranks, const Launch& launch, const RunArguments& arguments) {
  std::unique_ptr<OpenedRun> run;
  std::optional<TextTokens> text;
  on_all_ranks(ranks, [&] {
    run = open_named({arguments.run, arguments.step, arguments.settings, launch});
    text = text_to_evaluate(*run, arguments);
  });
  require_same_program(ranks, run->trainer->config());
  require_same(ranks, {"checkpoint", fmt::format("step {}", run->trainer->steps_done()), "name one with --step"});
  if (run->data.train_images != nullptr) return evaluate_images(*run, arguments, ranks);
  EvaluationOptions options{.ranks = ranks};
  if (arguments.batches > 0) options.batches = arguments.batches;
  options.tokenizer = run->data.tokenizer.get();
  if (ranks.is_first()) options.progress = show_progress;
  if (text && ranks.is_first()) {
    for (const std::string& note : text->notes) fmt::print(stderr, "quaver: {}\n", note);
  }
  const NamedRows named = rows_to_evaluate(*run, text);
  const std::vector<Evaluation> each = evaluate_rows(*run->trainer, named.rows, options);
  const Evaluation evaluation = each.empty() ? evaluate_batches(*run, options) : total_of(each);
  if (!ranks.is_first()) return 0;
  const nlohmann::ordered_json metrics = metrics_of(*run, arguments, evaluation);
  if (!arguments.documents.empty()) write_documents(arguments.documents, metrics, named, each);
  if (arguments.output == Output::json) {
    fmt::print("{}\n", metrics.dump());
  } else {
    print_text(*run, arguments, evaluation);
  }
  return 0;
}

}  // namespace

int eval_verb(const RunArguments& arguments) {
  return on_ranks([&](Communicator& ranks, const Launch& launch) { return eval_as(ranks, launch, arguments); });
}

}  // namespace quaver
