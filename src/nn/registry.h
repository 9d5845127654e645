// What a model is made of, stated once while it is built: parameters, linear layers and their sites. Layers register
// themselves as they are constructed; the plan is made from the registered layers and applied to their sites, and scale
// book, samples, store and dashboard follow the same order.
#pragma once

#include <map>

#include "engine/image_operations.h"
#include "nn/parameter.h"
#include "precision/scale_book.h"

namespace quaver {

// The three sites of a linear layer.
struct LayerSites {
  Site& x;
  Site& w;
  Site& dy;
};

// Low-rank adapters (nn/adapter.h) of the layers within blocks whose names match a pattern. Rank 0: there are none.
struct LoraShape {
  Size rank = 0;
  double alpha = 16;
  std::vector<std::string> targets = {};
};

class Registry {
 public:
  explicit Registry(const ScaleRules& rules = {}) : book_(rules) {}

  // The layer's sites, which stay where they are. Their formats are FP32 until a plan is applied to the book. Throws
  // Error when another layer has the name.
  LayerSites add(const LayerShape& layer);

  // That a layer's x is patches: the window over one image.
  void add_window(const std::string& layer, const PatchWindow& window) { windows_[layer] = window; }
  const std::map<std::string, PatchWindow>& windows() const { return windows_; }

  // Before the layers that are adapted register.
  void adapt(LoraShape lora) { lora_ = std::move(lora); }
  const LoraShape& lora() const { return lora_; }
  bool adapts(const std::string& layer, Size block) const;
  void check_targets() const;  // throws Error where a pattern matches no layer that could be adapted

  Parameters& parameters() { return parameters_; }
  const Parameters& parameters() const { return parameters_; }
  const std::vector<LayerShape>& layers() const { return layers_; }
  ScaleBook& book() { return book_; }
  const ScaleBook& book() const { return book_; }

 private:
  LoraShape lora_;
  Parameters parameters_;
  std::vector<LayerShape> layers_;
  std::map<std::string, PatchWindow> windows_;
  ScaleBook book_;
};

}  // namespace quaver
