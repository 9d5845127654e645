// What a model is made of, stated once while it is built: parameters, linear layers and their sites. Layers register
// themselves as they are constructed; the plan is made from the registered layers and applied to their sites, and scale
// book, samples, store and dashboard follow the same order.
#pragma once

#include "nn/parameter.h"
#include "precision/scale_book.h"

namespace quaver {

// The three sites of a linear layer.
struct LayerSites {
  Site& x;
  Site& w;
  Site& dy;
};

class Registry {
 public:
  explicit Registry(const ScaleRules& rules = {}) : book_(rules) {}

  // The layer's sites, which stay where they are. Their formats are FP32 until a plan is applied to the book. Throws
  // Error when another layer has the name.
  LayerSites add(const LayerShape& layer);

  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }
  const std::vector<LayerShape>& layers() const { return layers_; }
  ScaleBook& book() { return book_; }
  const ScaleBook& book() const { return book_; }

 private:
  Parameters parameters_;
  std::vector<LayerShape> layers_;
  ScaleBook book_;
};

}  // namespace quaver
