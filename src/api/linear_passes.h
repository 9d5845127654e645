// The casts and GEMMs of a linear layer over arrays in the engine's memory, with memory for codes from the caller:
// nothing of a pass is kept here, so that any number of them may be between forward and backward.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/engine.h"
#include "nn/registry.h"
#include "precision/precision_config.h"
#include "quaver/linear.h"

namespace quaver {

class LinearPasses {
 public:
  LinearPasses(const LayerShape& shape, const PrecisionConfig& precision, std::uint64_t seed);

  // Before anything else: the engine that all calls are given.
  void start(Engine& engine, const PrecisionConfig& precision);

  LinearMemory memory(Size tokens, Format format) const;
  void set_weight(Engine& engine, const View& weight);
  bool has_weight() const { return weight_.valid(); }
  void forget_weight() { weight_ = {}; }
  void forward(Engine& engine, const LinearForward& pass);
  void backward(Engine& engine, const LinearBackward& pass);

  Size in() const { return registry_->layers().front().in; }
  Size out() const { return registry_->layers().front().out; }
  ScaleBook& book() const { return registry_->book(); }
  std::span<Site* const> sites() const { return sites_; }
  void collect(Detail detail) { casting_.detail = detail; }

  // How many casts there were, which random streams depend on.
  struct Casts {
    std::uint32_t x = 0;
    std::uint32_t weight = 0;
    std::uint32_t dy = 0;
  };
  const Casts& casts() const { return casts_; }
  void set_casts(const Casts& casts) { casts_ = casts; }

  std::unique_ptr<Registry> take_registry() { return std::move(registry_); }

 private:
  Site& site(Role role) const { return *sites_[static_cast<std::size_t>(role)]; }
  // Whether a matrix of this format is its own codes: the site stores it so, in high precision.
  bool is_own_codes(Role role, Format format) const;
  bool observes_uncast(const Casting& casting) const { return casting.observe && casting.detail == Detail::full; }
  QuantizedTensor place_x(Size tokens, LinearPass pass, Arena& kept, Arena& scratch) const;
  QuantizedTensor place_dy(Size tokens, Arena& scratch) const;
  QuantizedTensor place_copy(Role role, Size rows, Size cols, Arena& scratch) const;
  // The matrix as codes. Full statistics are gathered by a cast into scratch memory.
  QuantizedTensor own_codes(Engine& engine, Role role, const View& matrix, const Casting& casting, Arena& scratch);
  QuantizedTensor x_for_backward(const LinearBackward& pass) const;
  QuantizedTensor cast_dy(Engine& engine, const LinearBackward& pass);

  std::unique_ptr<Registry> registry_;
  std::vector<Site*> sites_;  // by role
  Casting casting_;
  Sharing sharing_ = Sharing::where_exact;
  Accumulators accumulators_;
  std::shared_ptr<std::byte> one_;  // the float 1, the scale of matrices that are their own codes
  std::shared_ptr<std::byte> weight_codes_;
  QuantizedTensor weight_;
  Casts casts_;
};

}  // namespace quaver
