// The training loop's core: one optimizer step at a time, evaluation, and the whole state of a run as a checkpoint.
// Same config, seed and device give the same bits; a restored trainer continues as if it had never stopped. The ranks
// of a run have a trainer each. What runs a pass, and snapshot(), is collective: all of them call it, and end in the
// same state. What makes or changes a trainer is not, so that it may fail on one of them.
#pragma once

#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "config/config.h"
#include "numerics/statistics.h"
#include "optim/optimizer.h"
#include "precision/loss_scale.h"
#include "train/batch_source.h"
#include "train/checkpoint_tensors.h"
#include "train/gradient_exchange.h"
#include "train/gradient_noise.h"
#include "train/micro_batches.h"
#include "train/precision_control.h"
#include "train/probes.h"
#include "train/step_memory.h"
#include "train/tally.h"
#include "train/training_data.h"
#include "train/watch_state.h"

namespace quaver {

// What several ranks spent in exchanges of gradients and weights in a step, waiting for each other included. The others
// wait for the slowest rank, which itself spends least there.
struct CommunicationTimes {
  double least = 0;
  double most = 0;
  int slowest_rank = 0;
};

struct StepReport {
  Size step = 0;  // number of the step just finished, from 1
  double loss = 0;
  double learning_rate = 0;
  double gradient_norm = 0;
  bool skipped = false;  // gradients or loss were not finite: the weights did not move
  float loss_scale = 1;
  double seconds = 0;
  Size tokens = 0;
  std::uint64_t saturated = 0;  // elements in this step, over all sites
  std::uint64_t underflowed = 0;
  std::uint64_t overflows = 0;  // sites that overflowed in this step
  double update_ratio = 0;      // ‖Δw‖/‖w‖ over all matrices
  double unmoved_percent = 0;   // matrix weights that the update did not change
  float max_logit = 0;          // of attention

  // Where the time went: waiting for data, the micro-steps, and the rest, which is measuring gradients and the update.
  double data_seconds = 0;
  double micro_steps_seconds = 0;
  double optimizer_seconds = 0;

  std::optional<CommunicationTimes> communication;  // of several ranks

  std::optional<double> validation_accuracy;  // of a classifier, after a step that was validated

  bool sampled = false;                                            // full statistics were gathered
  double gradient_snr = std::numeric_limits<double>::quiet_NaN();  // of all gradients, where sampled
};

struct LossPoint {
  Size step = 0;
  double loss = 0;
  double seconds = 0;  // that the run's steps had taken by then, in all sessions; what lies between steps not counted
};

struct Validation {
  double loss = 0;                      // mean over the rows
  Size rows = 0;                        // that had a loss
  std::optional<double> accuracy = {};  // of a classifier: the share of rows whose class was the likeliest
};

struct MemoryUse {
  Size weights = 0;
  Size quantized_weights = 0;
  Size gradients = 0;
  Size optimizer = 0;
  Size activations = 0;  // kept for backward
  Size scratch = 0;

  Size total() const { return weights + quantized_weights + gradients + optimizer + activations + scratch; }
};

class Trainer {
 public:
  // `config` as loaded; the vocabulary and all automatic choices are resolved here. Throws Error when the model does
  // not fit into memory, saying by how much.
  Trainer(const Config& config, const TrainingData& data, Engine& engine, Notice notice,
          Communicator& ranks = single_process());

  // Any model on any batches. The config is complete, and its model section is the factory's business.
  Trainer(Config config, const ModelFactory& make_model, std::unique_ptr<BatchSource> batches, Engine& engine,
          Notice notice, Communicator& ranks = single_process());
  ~Trainer();

  // Throws what reading the data throws; the trainer is then as it was before the step.
  StepReport step();
  bool finished() const { return step_ >= config_.train.steps; }
  Size steps_done() const { return step_; }

  // Over the validation batches, which the trainer's ranks divide, or those that are given, each with a trainer by
  // itself; nothing about the run changes. Empty without validation data.
  std::optional<Validation> validate(Size batches) { return validate(batches, ranks_); }
  std::optional<Validation> validate(Size batches, Communicator& among);
  std::optional<double> evaluate(Size batches);  // the loss alone

  // The loss of each row of a micro-batch, which may be smaller than the run's; targets below 0 have none. `index`
  // numbers it among those of an evaluation. Nothing about the run changes.
  std::vector<double> row_losses(const Batch& batch, const BatchShape& shape, Size index);

  // As Probes: nothing about the run changes.
  ProbeResult probe(std::span<const SiteSpec> specs, Size batch, ProbeWhat what) {
    settle_weights();
    return probes_.probe(specs, batch, what);
  }
  // Recomputes the next step's first micro-batch as it is and in high precision, and compares the gradients.
  GradientAgreement shadow_check();

  // The statistics of every site at the step just finished, after one that was sampled.
  NumericsSample numerics() const;

  // For passes beside training (train/decoder.h): nothing about the run changes.
  Step evaluation_step();
  LanguageModel& language_model();  // throws Error where it is none

  // Logits of the token after `tokens` (the last `context` of them). Throws Error where the model is no language model.
  std::vector<float> next_token_logits(std::span<const std::int32_t> tokens);

  // Has every rank run the kernels that the first one's measurements choose. Collective; to be called once, before the
  // first step.
  void agree_on_kernels();

  // Throws AgreedError, naming the rank, where one has other weights than the first: it has computed wrongly.
  // Collective.
  void require_same_weights();

  // What a checkpoint holds, with what the run's watch remembers. The content points into the trainer's own copy: valid
  // until the next snapshot.
  CheckpointContent snapshot(const WatchState& watch = {});
  WatchState restore(const Checkpoint& checkpoint);

  // The weights of the folder that model.from names, in place of the random ones: before the first step of a new run.
  void load_pretrained();

  // Continues with other batches than those that led here: after a rewind.
  void skip_batches(Size count);

  // How the sites are stored: as PrecisionControl.
  void change_site(const std::string& site, const SiteSpec& spec, const std::string& reason) {
    precision_.change_site(site, spec, reason);
  }
  bool recalibrate(const std::string& site, const std::string& reason) { return precision_.recalibrate(site, reason); }
  std::vector<std::string> take_back(const std::string& pattern) { return precision_.take_back(pattern); }
  void apply_plan(const Plan& plan, const std::string& reason) { precision_.apply_plan(plan, reason); }
  std::optional<std::string> change_plan_from(const Config& trained, const std::string& reason) {  // after restore()
    return precision_.change_plan_from(trained, reason);
  }
  const Plan& plan() const { return precision_.plan(); }
  std::vector<SiteSpec> specs() const { return precision_.specs(); }
  std::vector<SiteSpec> high_precision_specs() const { return precision_.high_precision_specs(); }
  std::map<std::string, double> format_shares() const { return precision_.format_shares(); }

  const Config& config() const { return config_; }  // as resolved
  ScaleBook& book() { return book_; }
  const ScaleBook& book() const { return book_; }
  Model& model() { return *model_; }
  const Model& model() const { return *model_; }
  Optimizer& optimizer() { return *optimizer_; }
  Engine& engine() { return engine_; }
  Communicator& ranks() { return ranks_; }
  MemoryUse memory() const;
  double embedding_rms() const;  // of the token table, after the last update; NaN before the first

 private:
  Step make_step(Pass pass) const { return context_.make_step(pass); }
  Casting weight_casting(Detail detail = Detail::counts) const { return context_.weight_casting(detail); }
  bool is_sampled(Size step) const;
  void gather_weight_statistics();
  void enqueue_evaluation(Step step, const Batch& batch, Size index);
  void join_last_pass(Size batches);
  void micro_steps(StepReport& report);
  void run_group(Size round, StepReport& report);
  Batch read_or_blank(const std::function<Batch()>& read, BatchStorage& blank);
  void rethrow_failed_read();
  Size rows_of_step() const;
  bool advance_scales();
  void update_weights(double learning_rate, double decay);
  void take_back_update(std::uint32_t last_cast);
  void share_findings(StepReport& report, double communicated_before);
  void finish_step(StepReport& report);
  void abandon_step();
  void plan_pass(Size round, bool leave, bool sampled);
  void look_closely(bool left);
  void note_squares(Size bucket);
  void calibrate();
  void settle_casts();
  void settle_weights();
  std::vector<const Site*> sites_of_loss_scale() const;
  bool loss_scale_overflowed() const;
  void fill_report(StepReport& report);
  void restart_loader();
  Size batch_index() const { return step_ * config_.train.accumulation + skipped_batches_; }

  Config config_;
  std::unique_ptr<BatchSource> batches_;
  Engine& engine_;
  Communicator& ranks_;
  MicroBatches micro_batches_;
  std::unique_ptr<Model> model_;
  ScaleBook& book_;           // of the model
  std::vector<Site*> sites_;  // of the book
  std::unique_ptr<Optimizer> optimizer_;
  LossScale loss_scale_;
  StepMemory memory_;
  std::optional<GradientExchange> exchange_;
  WeightGather weights_;
  ShardedPass sections_;
  Size step_ = 0;
  Size skipped_batches_ = 0;
  std::uint32_t last_weight_cast_ = 0;  // step of the random streams when the weights were last cast
  Tally tally_;
  double micro_steps_seconds_ = 0;    // of the latest step, on the device
  double communication_seconds_ = 0;  // so far
  double rows_with_loss_ = 0;         // in all micro-batches of the step, of all ranks
  bool calibrated_ = false;           // or nothing is
  std::exception_ptr failed_read_;    // of this rank, until all ranks throw it
  GradientNoise noise_;               // of the last sampled step
  TrainingContext context_;
  PrecisionControl precision_;
  Probes probes_;
  CheckpointTensors tensors_;
  std::shared_ptr<std::byte> row_losses_;  // in engine memory, once they were asked for
};

}  // namespace quaver
