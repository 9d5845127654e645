// Parameters: a model's weights with their gradients, and for those that GEMMs read, the site of their codes. Several
// ranks may share them out (nn/shard_mode.h): then each has the memory of what it owns, and of what its passes read.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "nn/shard_mode.h"

namespace quaver {

enum class ParameterKind : std::uint8_t { matrix, embedding, vector };

struct Parameter {
  std::string name;
  ParameterKind kind = ParameterKind::matrix;
  Size rows = 0;
  Size cols = 0;
  // Of a hidden matrix, one within a block: the rows of each projection that it holds, as q, k and v. Else empty.
  std::vector<Size> projections = {};
  float init_mean = 0;
  float init_std = 0;
  float learning_rate_factor = 1;
  float gradient_ratio = 1;  // stored gradient over the true gradient of the mean loss
  Size section = 0;          // of the model: what reads it, and computes its gradient
  Size code_section = 0;     // the one whose GEMMs read it
  bool tied = false;         // these two differ: both add to its gradient
  int owner = 0;             // the rank that adds up its gradient, and updates it where optimizer state is sharded
  bool kept = true;          // this rank has its master weight and optimizer state
  bool adapter = false;      // of a low-rank adapter: where a model has some, its other parameters are frozen
  bool frozen = false;       // never updated: its master weight stays as it is, and it has no optimizer state
  // A moving average, of which passes add up what it averages where others have a gradient. Nothing else updates it.
  bool averages = false;

  View master = {};        // what the optimizer updates: FP32 or BF16; empty where it is not kept
  View weight = {};        // what passes read that do not read codes: embeddings and vectors; else the master weight
  View gradient = {};      // of this rank's micro-batches, FP32; empty where it has none
  View gradient_sum = {};  // of all ranks' micro-batches, where this rank has it: what the optimizer reads
  Site* site = nullptr;
  QuantizedTensor quantized = {};   // the weight as GEMMs read it
  QuantizedTensor kept_codes = {};  // the same where the owner keeps it, when GEMMs read it elsewhere

  Size count() const { return rows * cols; }
  // Whether its gradient is complete when the backward pass is through with its section, not only after the whole pass.
  bool completes_with_section() const { return !tied && kind != ParameterKind::vector; }
  // Vectors always: what computes their gradients computes more besides.
  bool has_gradient() const { return !frozen || kind == ParameterKind::vector; }
  bool is_read_whole() const { return kind != ParameterKind::matrix; }  // in the master's format
  // Whether its site stores it otherwise than the optimizer does: else nobody needs to see the cast.
  bool is_cast() const;
  QuantizedTensor& cast_target() { return kept_codes.valid() ? kept_codes : quantized; }
};

// Sections in a row. Their gradients leave together, when the backward pass is through with the first of them; where
// weights stay, those of an update arrive together.
struct Bucket {
  Size first = 0;
  Size last = 0;
  std::vector<Parameter*> parameters = {};  // whose gradients are complete then, by owner
  View gradients = {};  // where they last: theirs, with gaps of zeros; a multiple of 64 for each rank
};

// What the owner of a parameter has and the passes of all ranks read.
struct SharedPiece {
  Parameter* parameter = nullptr;
  Size section = 0;           // that reads it; before_sections: a vector, which any section may read
  std::byte* kept = nullptr;  // by the owner; null on other ranks
  std::byte* read = nullptr;  // by passes: the same memory where it is not moved for each section
  Size bytes = 0;             // that travel
  Size copied = 0;            // from the one to the other, on the owner
  bool is_codes = false;      // with their scales; else in the master's format
  bool transposes = false;    // then the columnwise codes have to be made from the rowwise ones, which alone travel

  static constexpr Size before_sections = -1;
};

class Parameters {
 public:
  // References stay good as more are added.
  Parameter& add(Parameter parameter);
  // What is added from now on belongs to the next section. A model runs its sections one after the other.
  void begin_section() { ++section_; }
  Size section() const { return section_; }  // the latest

  std::deque<Parameter>& all() { return list_; }
  const std::deque<Parameter>& all() const { return list_; }
  Parameter& find(const std::string& name);  // throws Error
  Size count() const;
  Size frozen_count() const;

  // In their order: all sections. Where gradients are not sharded a bucket is about an eighth of them, so that most
  // owners have a part in it, else a section.
  const std::vector<Bucket>& buckets() const { return buckets_; }
  Size bucket_of(Size section) const { return bucket_of_[static_cast<std::size_t>(section)]; }
  // The other gradients, which are complete when the whole pass is: of vectors, and of a table that two sections share.
  const Bucket& rest() const { return rest_; }

  // Names the owners, by size, so that each rank has about the same number of weights. Before allocate().
  void deal_out(const ShardPlace& place);
  const ShardPlace& place() const { return place_; }

  // Memory for weights and gradients. Vectors stay FP32 whatever the matrices are stored in.
  void allocate(Engine& engine, Format matrices);

  // Master weights from the seed and each parameter's own name, so that adding a parameter changes no other.
  void initialize(Engine& engine, std::uint64_t seed);

  // Casts every weight that is kept into its site: after initialization, loading, or a change of a site's spec. The
  // codes stay where they are unless a spec needs more memory than any before: storage_moves() counts that, for those
  // who captured a graph that reads them.
  void quantize_all(Engine& engine, const Casting& casting);
  void quantize(Parameter& parameter, Engine& engine, const Casting& casting);
  // The same where the specs are as they were at the last cast.
  void cast(Parameter& parameter, Engine& engine, const Casting& casting);

  std::size_t storage_moves() const { return storage_moves_; }

  // Of all parameters, the same on every rank.
  std::vector<SharedPiece> shared_pieces();

  void clear_gradients(Engine& engine);
  // Where gradients of a section share memory with those of others: before its backward pass.
  void clear_gradients(Engine& engine, Size section);
  // Whether the gradient is there after the whole backward pass, not after its section's alone.
  bool lasts(const Parameter& parameter) const;

  // Whether passes find a section's weights in memory that sections share: two of them in a row have places apart.
  bool moves_by_section() const { return place_.has(ShardMode::weights); }
  static constexpr std::size_t slots = 2;
  static std::size_t slot_of(Size section) { return static_cast<std::size_t>(section) % slots; }

  Size weight_bytes() const;     // of what stays of master weights, embeddings and vectors
  Size master_bytes() const;     // of the master weights that are kept
  Size quantized_bytes() const;  // of codes and scales, and of the memory that sections share
  Size gradient_bytes() const;

 private:
  struct CodeStorage {
    std::shared_ptr<std::byte> memory;
    Size bytes = 0;
  };

  bool is_own_codes(const Parameter& parameter) const;
  bool weight_stays(const Parameter& parameter) const;
  Format master_format(const Parameter& parameter) const;
  Size weight_bytes_of(const Parameter& parameter) const;
  void place_weights(Engine& engine);
  void fill_buckets();
  void place_gradients(Engine& engine);
  void place_codes(Engine& engine);
  void place_sections(Engine& engine);
  void reserve(Engine& engine, CodeStorage& storage, Size bytes);

  std::deque<Parameter> list_;
  Size section_ = 0;
  ShardPlace place_;
  Format matrices_ = Format::f32;  // what the master weights of matrices are stored in
  Sharing sharing_ = Sharing::where_exact;
  std::shared_ptr<std::byte> weights_;
  std::shared_ptr<std::byte> gradients_;
  std::vector<Bucket> buckets_;
  std::vector<Size> bucket_of_;  // each section
  Bucket rest_;
  Size shared_gradient_bytes_ = 0;  // of the memory that sections share
  std::vector<CodeStorage> codes_;  // one per parameter: those that GEMMs read, or those that are kept
  CodeStorage section_memory_;      // of the section that runs and the next, where weights are sharded
  std::size_t storage_moves_ = 0;
  std::shared_ptr<std::byte> one_;  // the float 1, for tensors that are their own codes
};

}  // namespace quaver
