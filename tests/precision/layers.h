// The linear layers of a small transformer, as plans see them.
#pragma once

#include <string>
#include <vector>

#include "precision/plan.h"

namespace quaver::test {

inline std::vector<LayerShape> some_layers(Size blocks) {
  std::vector<LayerShape> layers;
  for (Size b = 0; b < blocks; ++b) {
    const std::string prefix = "blocks." + std::to_string(b) + ".";
    layers.push_back({prefix + "attn.qkv", 64, 192, b});
    layers.push_back({prefix + "attn.out", 64, 64, b});
    layers.push_back({prefix + "mlp.up", 64, 256, b});
    layers.push_back({prefix + "mlp.down", 256, 64, b});
  }
  layers.push_back({"head", 64, 1000, -1, true});
  return layers;
}

}  // namespace quaver::test
