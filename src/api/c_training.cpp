// The C interface to training and to the tables of runs.
#include <cstring>

#include "api/c_guard.h"

#include "quaver/runs.h"
#include "quaver/training.h"

using namespace quaver;
using quaver::c::guarded;
using quaver::c::Invalid;
using quaver::c::or_nan;
using quaver::c::require;

struct quaver_store {
  std::string path;
  std::vector<RecordedRun> runs;
};

struct quaver_table {
  std::vector<MetricColumn> columns;
};

namespace {

quaver_step_metrics c_metrics(const TrainingStep& from) {
  return {.step = from.step,
          .steps = from.steps,
          .tokens = from.tokens,
          .loss = from.loss,
          .learning_rate = from.learning_rate,
          .gradient_norm = from.gradient_norm,
          .loss_scale = from.loss_scale,
          .seconds = from.seconds,
          .validation_loss = or_nan(from.validation_loss),
          .validation_accuracy = or_nan(from.validation_accuracy),
          .saturated = from.saturated,
          .underflowed = from.underflowed,
          .overflows = from.overflows,
          .skipped = from.skipped ? 1 : 0};
}

TrainingCallbacks callbacks_of(const quaver_training& training) {
  TrainingCallbacks callbacks;
  if (training.on_step != nullptr) {
    callbacks.step = [&training](const TrainingStep& metrics) {
      const quaver_step_metrics plain = c_metrics(metrics);
      return training.on_step(&plain, training.user) == 0 ? AfterStep::proceed : AfterStep::stop;
    };
  }
  if (training.on_message != nullptr) {
    callbacks.message = [&training](const std::string& text) { training.on_message(text.c_str(), training.user); };
    callbacks.warning = callbacks.message;
  }
  return callbacks;
}

TrainingResult train_or_resume(const quaver_training& from) {
  const std::vector<std::string> settings = c::texts(from.settings, from.setting_count, "settings");
  if (from.resume != nullptr) return resume(c::text(from.resume, "resume"), settings, callbacks_of(from));
  TrainingConfig config;
  config.files = c::texts(from.files, from.file_count, "files");
  if (from.toml != nullptr) config.toml = c::text(from.toml, "toml");
  config.settings = settings;
  return train(config, callbacks_of(from));
}

void copy_path(const std::string& path, char (&out)[QUAVER_PATH_BYTES]) {
  if (path.size() >= sizeof(out)) throw Error("the path of the run is too long: " + path, "use a shorter run.dir");
  std::memcpy(out, path.c_str(), path.size() + 1);
}

}  // namespace

quaver_status quaver_train(const quaver_training* training, quaver_training_result* out) {
  return guarded([&] {
    require(training, "training");
    require(out, "out");
    const TrainingResult result = train_or_resume(*training);
    *out = {};
    copy_path(result.directory, out->directory);
    out->stopped = result.end == TrainingEnd::stopped ? 1 : 0;
    out->steps = result.steps;
    out->train_loss = or_nan(result.train_loss);
    out->validation_loss = or_nan(result.validation_loss);
    out->seconds_per_step = result.seconds_per_step;
    out->tokens_per_second = result.tokens_per_second;
  });
}

quaver_status quaver_evaluate(const char* run, int64_t batches, quaver_evaluation* out) {
  return guarded([&] {
    require(out, "out");
    const EvaluationResult result = evaluate(c::text(run, "run"), {}, batches);
    *out = {.step = result.step, .rows = result.rows, .loss = result.loss, .accuracy = or_nan(result.accuracy)};
  });
}

quaver_status quaver_export_model(const char* run, const char* folder) {
  return guarded([&] { export_model(c::text(run, "run"), c::text(folder, "folder")); });
}

quaver_status quaver_store_open(const char* path, quaver_store** out) {
  return guarded([&] {
    require(out, "out");
    const std::string store = c::text(path, "path");
    *out = new quaver_store{store, recorded_runs(store)};
  });
}

void quaver_store_free(quaver_store* store) { delete store; }
size_t quaver_store_runs(const quaver_store* store) { return store == nullptr ? 0 : store->runs.size(); }

quaver_status quaver_store_run(const quaver_store* store, size_t index, quaver_run_info* out) {
  return guarded([&] {
    require(store, "store");
    if (index >= store->runs.size()) throw Invalid("there is no run " + std::to_string(index), "count them first");
    const RecordedRun& run = store->runs[index];
    *require(out, "out") = {.id = run.id.c_str(),
                            .name = run.name.c_str(),
                            .model = run.model.c_str(),
                            .recipe = run.recipe.c_str(),
                            .status = run.status.c_str(),
                            .directory = run.directory.c_str(),
                            .seed = run.seed,
                            .step = run.step,
                            .steps = run.steps,
                            .loss = or_nan(run.loss),
                            .validation_loss = or_nan(run.validation_loss),
                            .tokens_per_second = or_nan(run.tokens_per_second)};
  });
}

quaver_status quaver_store_metrics(const quaver_store* store, const char* run_id, quaver_table** out) {
  return guarded([&] {
    require(out, "out");
    *out = new quaver_table{recorded_metrics(require(store, "store")->path, c::text(run_id, "run_id"))};
  });
}

void quaver_table_free(quaver_table* table) { delete table; }
size_t quaver_table_columns(const quaver_table* table) { return table == nullptr ? 0 : table->columns.size(); }

quaver_status quaver_table_column(const quaver_table* table, size_t index, quaver_column* out) {
  return guarded([&] {
    require(table, "table");
    if (index >= table->columns.size()) {
      throw Invalid("there is no column " + std::to_string(index), "count them first");
    }
    const MetricColumn& column = table->columns[index];
    *require(out, "out") = {column.name.c_str(), column.steps.data(), column.values.data(), column.values.size()};
  });
}
