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

}  // namespace quaver
