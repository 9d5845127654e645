// What one micro-step carries through the layers: the engine, its memory, the shape of the batch, and how casts behave.
#pragma once

#include "engine/engine.h"
#include "nn/key_value_cache.h"
#include "nn/pass_operand.h"

namespace quaver {

// calibrate: as train, and unit-scaled branches set the constants that give their tensors unit variance.
enum class Pass : std::uint8_t { train, evaluate, calibrate };

// What is kept for backward. speed: all of it. A producer's backward pass can requantize its result, so that the
// columnwise codes need not be kept: balanced does that where the cast is one pass, which costs nothing; small does it
// wherever possible, and recomputes the widest matrix, an MLP's hidden one.
enum class Memory : std::uint8_t { speed, balanced, small };

// packed: a row of tokens holds several documents, whose starts come with the batch.
enum class Documents : std::uint8_t { one_per_row, packed };

// What differs from one micro-step to the next of the same shape, in engine memory.
struct StepVariables {
  std::uint32_t micro_step = 0;
  float gradient_scale = 1;
  float one = 1;  // the scale of tensors that are their own codes
};

// What several ranks do while a pass runs, section by section.
class SectionWork {
 public:
  virtual ~SectionWork() = default;
  virtual std::uint64_t key() const = 0;  // identifies what it does in the next pass
  virtual void begin_pass() = 0;
  virtual void use(Size section) = 0;              // its weights are read from now on, and those of no other
  virtual void begin_gradients(Size section) = 0;  // they are added to from now on
  virtual void end_gradients(Size section) = 0;    // they are complete, but for those of vectors and shared tables
  virtual void end_pass() = 0;
};

struct Step {
  Engine& engine;
  Arena& arena;
  Size batch = 0;
  Size sequence = 0;
  Pass pass = Pass::train;
  Memory memory = Memory::balanced;
  Documents documents = Documents::one_per_row;  // of blank batches
  // What gradients of the summed loss are divided by: rows with a loss, per micro-batch of the optimizer step; 0: those
  // of the batch.
  double mean_rows = 0;
  DocumentStarts document_starts = {};  // of the batch, in engine memory
  Casting casting = {};
  Accumulators accumulators = {};
  float z_loss = 0;  // weight of the head's z-loss
  float* max_logit = nullptr;
  double* row_losses = nullptr;        // in engine memory: the loss of each row; null: not wanted
  std::uint64_t* correct = nullptr;    // in engine memory: += the rows whose target is the likeliest; null: not counted
  float* one = nullptr;                // in engine memory: the scale of tensors that are their own codes
  std::uint32_t micro_step = 0;        // of the random streams
  std::uint64_t generation = 0;        // changes when a site's format does
  SectionWork* sections = nullptr;     // null: there is one rank
  const Decoding* decoding = nullptr;  // null: every sequence is whole

  Size tokens() const { return batch * sequence; }
  // One new token per sequence, which attends to what a cache has of those before it.
  bool decodes_one() const { return decoding != nullptr && sequence == 1; }

  void use(Size section) const {
    if (sections != nullptr) sections->use(section);
  }
  void begin_gradients(Size section) const {
    if (sections != nullptr) sections->begin_gradients(section);
  }
  void end_gradients(Size section) const {
    if (sections != nullptr) sections->end_gradients(section);
  }

  // At the start of a pass: what differs between micro-steps goes into engine memory, where casts find it.
  StepVariables* begin(const StepVariables& variables) {
    auto* device = reinterpret_cast<StepVariables*>(arena.take_saved(sizeof(variables)));
    engine.device().upload(&variables, device, sizeof(variables));
    casting.micro_step = &device->micro_step;
    one = &device->one;
    return device;
  }

  // The values in engine memory, until the arena is reset.
  template <class Value>
  std::span<const Value> uploaded(std::span<const Value> values) {
    std::byte* device = arena.take_saved(values.size_bytes());
    engine.device().upload(values.data(), device, values.size_bytes());
    return {reinterpret_cast<const Value*>(device), values.size()};
  }

  // A high-precision matrix that backward reads too, and one that is freed with its scope.
  View saved(Size cols) { return arena.saved(tokens(), cols, engine.high_precision()); }
  View scratch(Size cols) { return arena.scratch(tokens(), cols, engine.high_precision()); }

  auto saved_memory() {
    return [this](std::size_t bytes) { return arena.take_saved(bytes); };
  }
  auto scratch_memory() {
    return [this](std::size_t bytes) { return arena.take_scratch(bytes); };
  }

  QuantizedTensor saved(Site& site, Size cols, Copies copies) {
    return {site,          tokens(), cols, pass == Pass::evaluate ? Copies::rows_only : copies, engine.sharing(),
            saved_memory()};
  }
  QuantizedTensor saved(Site& site, Size cols) { return saved(site, cols, Copies::both); }
  // The same where the rows are read in this scope only: they are not kept, unless they are the columnwise codes too.
  QuantizedTensor operand(Site& site, Size cols) {
    if (pass == Pass::evaluate) return scratch(site, cols, Copies::rows_only);
    if (!stores_columns_apart(site.spec, engine.sharing())) return saved(site, cols);
    return {site, tokens(), cols, Copies::both, engine.sharing(), MemoryBySide{scratch_memory(), saved_memory()}};
  }
  QuantizedTensor scratch(Site& site, Size cols, Copies copies) {
    return {site, tokens(), cols, copies, engine.sharing(), scratch_memory()};
  }

  // When the columns of x are cast whose producer does not requantize it.
  ColumnsCast columns_cast() const { return pass == Pass::evaluate ? ColumnsCast::never : ColumnsCast::with_rows; }

  // Whether a matrix is stored as the site stores it, in high precision: a GEMM can read it without a cast …
  bool is_own_codes(const Site& site, const View& matrix) const {
    return site.spec.rows.format == matrix.format && columns_share_rows(site.spec.rows, site.spec.columns) &&
           !is_low_precision(matrix.format);
  }
  // … and whether nothing is left to do at all: no statistics to gather either.
  bool can_skip_cast(const Site& site, const View& matrix) const {
    return is_own_codes(site, matrix) && (casting.detail == Detail::counts || !casting.observe);
  }
  // Full statistics of a matrix that needs no cast: a cast into scratch memory gathers them.
  void observe_uncast(Site& site, const View& matrix) {
    const Arena::Scope scope(arena);
    QuantizedTensor copy = scratch(site, matrix.cols, Copies::rows_only);
    engine.run(Quantize{matrix, copy, casting});
  }

  // Whether the columns of an operand whose producer can requantize it are made in backward.
  bool requantizes(const Site& site) const {
    const QuantSpec& spec = site.spec.columns;
    const bool one_pass = spec.block == block::tensor && spec.policy != ScalePolicy::current;
    const bool wanted = memory == Memory::small || (memory == Memory::balanced && one_pass);
    return wanted && pass != Pass::evaluate && stores_columns_apart(site.spec, engine.sharing());
  }
};

// The factor that would have given the site's tensor unit variance, from what its cast has just seen with this one.
inline float factor_to_unit(float factor, Site& site, Engine& engine) {
  Site* const sites[] = {&site};
  engine.wait_for_statistics(sites);
  const double deviation = site.seen.std();
  site.seen = {};
  return deviation > 0 ? static_cast<float>(factor / deviation) : factor;
}

}  // namespace quaver
