// A model as the trainer, the memory planner, the studies and the commands see it: parameters and layers, the loss of a
// batch, and its own state. Only models/, config and interop know which family it is.
#pragma once

#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "nn/registry.h"
#include "nn/step.h"

namespace quaver {

// Token sequences, [batch × sequence] each.
struct TokenBatch {
  std::span<const std::int32_t> inputs;
  std::span<const std::int32_t> targets;  // negative: no loss there
  // Packed rows: for each token the position, within its row, at which its document begins. Attention does not cross
  // documents, and learned positions count from there. Empty: a row is one document.
  std::span<const std::int32_t> document_starts = {};
};

// One row of features and a class each; step.sequence is 1.
struct FeatureBatch {
  std::span<const float> features;        // [batch × width], row by row
  std::span<const std::int32_t> classes;  // negative: no loss there
};

using Batch = std::variant<TokenBatch, FeatureBatch>;

// Memory for a batch whose maker has none of its own.
struct BatchStorage {
  std::vector<std::int32_t> inputs;
  std::vector<float> features;
  std::vector<std::int32_t> targets;
  std::vector<std::int32_t> document_starts;
};

class Model {
 public:
  virtual ~Model() = default;
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  // Parameters have no memory until parameters().allocate(), and sites no formats until a plan of the layers is applied
  // to the book.
  Parameters& parameters() { return registry_.parameters(); }
  const Parameters& parameters() const { return registry_.parameters(); }
  const std::vector<LayerShape>& layers() const { return registry_.layers(); }  // in the order they run
  const std::map<std::string, PatchWindow>& windows() const {
    return registry_.windows();
  }  // of convolutions, by layer
  ScaleBook& book() { return registry_.book(); }
  const ScaleBook& book() const { return registry_.book(); }

  // Adds the summed loss of the batch to *loss_sum, in engine memory; unless the pass evaluates, also adds the
  // gradients of loss_scale times the mean loss (times each parameter's gradient_ratio) to the parameters' gradients;
  // the mean is over step.mean_rows where that is given.
  // Throws Error where the batch is not one for this model.
  void loss(Step& step, const Batch& batch, float loss_scale, double* loss_sum);

  // A batch of the step's shape whose values do not matter: for dry runs.
  virtual Batch blank_batch(const Step& step, BatchStorage& storage) const = 0;

  // Floating-point operations of one token's forward and backward pass at this sequence length; of one row's where
  // there are no tokens.
  virtual double flops_per_token(Size sequence) const;

  // Unit-scaled models: constants that give tensors unit variance, measured as part of initialization and saved with
  // the model. The weights' gradients are overwritten.
  virtual bool is_unit_scaled() const { return false; }
  virtual void calibrate_unit_factors(Step&) {}
  virtual std::vector<float> unit_factors() { return {}; }
  virtual void set_unit_factors(std::span<const float> factors);  // throws Error when the number is wrong

 protected:
  explicit Model(const ScaleRules& rules) : registry_(rules) {}

  // How many rows of the batch have a loss. Throws Error where the batch does not fit the model.
  virtual Size check(const Step& step, const Batch& batch) const = 0;
  // Before a pass, outside of what a CUDA graph captures.
  virtual void prepare(Step&) {}
  // The pass, over a batch in engine memory: forward, loss and, unless it evaluates, backward. Calls operations of the
  // engine only, so that they can be captured and replayed; says which section of the parameters it is at.
  virtual void run(Step& step, const Batch& batch, const float* gradient_scale, double* loss_sum) = 0;

  Registry& registry() { return registry_; }

 private:
  Registry registry_;
};

// What sequences of a cache are continued by: step.sequence tokens each. Several of them begin a sequence, and one
// follows what the cache has of it.
struct NewTokens {
  std::span<const std::int32_t> tokens;  // [batch × sequence]
  std::span<const std::int32_t> slots;   // of the cache, one per sequence
  std::span<const std::int32_t> first;   // the position of each sequence's first token
};

// A model that continues a sequence of tokens: what sampling needs.
class LanguageModel : public Model {
 public:
  virtual Size vocab() const = 0;
  // Logits of the token that follows the sequence, [1 × vocab]. step.batch must be 1.
  virtual void next_token_logits(Step& step, std::span<const std::int32_t> tokens, View logits) = 0;

  // Memory for decode(): `sequences` of at most `capacity` tokens.
  virtual KeyValueCache make_cache(Engine& engine, Size sequences, Size capacity) const = 0;
  // Logits of the token that follows each sequence, [step.batch × vocab]; their keys and values go into the cache.
  virtual void decode(Step& step, const KeyValueCache& cache, const NewTokens& next, View logits) = 0;

 protected:
  using Model::Model;
};

}  // namespace quaver
