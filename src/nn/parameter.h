// Parameters: a model's weights with their gradients, and for those that GEMMs read, the site of their codes.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace quaver {

enum class ParameterKind : std::uint8_t { matrix, embedding, vector };

struct Parameter {
  std::string name;
  ParameterKind kind = ParameterKind::matrix;
  Size rows = 0;
  Size cols = 0;
  float init_mean = 0;
  float init_std = 0;
  float learning_rate_factor = 1;
  float gradient_ratio = 1;  // stored gradient over the true gradient of the mean loss

  View weight = {};    // FP32, or BF16 where master weights are
  View gradient = {};  // FP32
  Site* site = nullptr;
  QuantizedTensor quantized = {};  // the weight as GEMMs read it

  Size count() const { return rows * cols; }
};

class Parameters {
 public:
  // References stay good as more are added.
  Parameter& add(Parameter parameter);

  std::deque<Parameter>& all() { return list_; }
  const std::deque<Parameter>& all() const { return list_; }
  Parameter& find(const std::string& name);  // throws Error
  Size count() const;

  // Memory for weights, gradients and quantized copies. Vectors stay FP32 whatever the matrices are stored in. There is
  // memory for a multiple of `gradient_granule` gradients.
  void allocate(Engine& engine, Format matrices, Size gradient_granule = 1);

  // Those of all parameters, with gaps of zeros between them.
  View gradients() const { return gradient_view_; }

  // Weights from the seed and each parameter's own name, so that adding a parameter changes no other.
  void initialize(Engine& engine, std::uint64_t seed);

  // Casts every weight into its site: after initialization, loading, or a change of a site's spec. The codes stay where
  // they are unless a spec needs more memory than any before: storage_moves() counts that, for those who captured a
  // graph that reads them.
  void quantize_all(Engine& engine, const Casting& casting);
  void quantize(Parameter& parameter, Engine& engine, const Casting& casting);

  std::size_t storage_moves() const { return storage_moves_; }

  void clear_gradients(Engine& engine);

  Size weight_bytes() const;
  Size quantized_bytes() const;

 private:
  std::deque<Parameter> list_;
  std::shared_ptr<std::byte> weights_;
  std::shared_ptr<std::byte> gradients_;
  View gradient_view_;
  struct CodeStorage {
    std::shared_ptr<std::byte> memory;
    Size bytes = 0;
  };
  std::vector<CodeStorage> quantized_;  // one per parameter
  std::size_t storage_moves_ = 0;
  std::shared_ptr<std::byte> one_;  // the float 1, for tensors that are their own codes
};

}  // namespace quaver
