// Keys and values that attention has computed already, layer by layer, for several sequences at once. It is engine
// memory in the engine's high precision; a pass that decodes adds its tokens to it.
#pragma once

#include <memory>

#include "engine/engine.h"

namespace quaver {

class KeyValueCache {
 public:
  struct Shape {
    Size layers = 0;
    Size kv_heads = 0;
    Size head_size = 0;
    Size sequences = 0;
    Size capacity = 0;  // tokens of each sequence
  };

  KeyValueCache(Engine& engine, const Shape& shape)
      : shape_(shape),
        format_(engine.high_precision()),
        memory_(engine.device().allocate(static_cast<std::size_t>(2 * shape.layers * part().bytes()))) {}

  const Shape& shape() const { return shape_; }
  KeyValues layer(Size index) const {
    KeyValues of_layer{part(), part(), shape_.capacity};
    of_layer.keys.data = memory_.get() + 2 * index * part().bytes();
    of_layer.values.data = memory_.get() + (2 * index + 1) * part().bytes();
    return of_layer;
  }

 private:
  View part() const {
    return {nullptr, format_, shape_.sequences * shape_.kv_heads * shape_.capacity, shape_.head_size};
  }

  Shape shape_;
  Format format_;
  std::shared_ptr<std::byte> memory_;
};

// What a pass that decodes has beside its tokens.
struct Decoding {
  const KeyValueCache& cache;
  CachedSequences at;
};

}  // namespace quaver
