#include "nn/registry.h"

#include <algorithm>

#include "quaver/error.h"

namespace quaver {

LayerSites Registry::add(const LayerShape& layer) {
  if (std::ranges::any_of(layers_, [&](const LayerShape& other) { return other.name == layer.name; })) {
    throw Error("two layers of the model are named " + layer.name, "give each layer a name of its own");
  }
  layers_.push_back(layer);
  const auto site = [&](Role role) -> Site& {
    return book_.add({.site = site_name(layer.name, role),
                      .layer = layer.name,
                      .role = role,
                      .recipe = {},
                      .reason = {},
                      .spec = {}});
  };
  Site& x = site(Role::x);
  Site& w = site(Role::w);
  Site& dy = site(Role::dy);
  return {x, w, dy};
}

bool Registry::adapts(const std::string& layer, Size block) const {
  return lora_.rank > 0 && block >= 0 &&
         std::ranges::any_of(lora_.targets, [&](const std::string& pattern) { return matches(pattern, layer); });
}

void Registry::check_targets() const {
  if (lora_.rank == 0) return;
  for (const std::string& pattern : lora_.targets) {
    const auto matched = [&](const LayerShape& layer) {
      return layer.adaptation == Adaptation::adapted && matches(pattern, layer.name);
    };
    if (std::ranges::any_of(layers_, matched)) continue;
    throw Error("lora.targets: the pattern \"" + pattern + "\" matches no layer of a block",
                "layers are named as blocks.0.attn.qkv, blocks.0.attn.out, blocks.0.mlp.up, blocks.0.mlp.down");
  }
}

}  // namespace quaver
