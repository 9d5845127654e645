// Output gradients of a stack of linear layers, in two buffers that alternate: that of a layer is still read, by a
// deferred wgrad, while what precedes the layer writes the next one's.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "nn/linear.h"

namespace quaver {

class OutputGradients {
 public:
  // uncast: the high-precision matrix that is a layer's output gradient itself where nothing is cast.
  OutputGradients(Step& step, std::vector<Linear*> layers, std::optional<View> uncast)
      : step_(step), layers_(std::move(layers)), uncast_(uncast) {
    std::size_t most = 0;
    for (Linear* layer : layers_) {
      if (is_uncast(*layer)) continue;
      std::size_t bytes = 0;
      place(*layer, [&](std::size_t piece) {
        bytes += aligned(piece);
        return static_cast<std::byte*>(nullptr);
      });
      most = std::max(most, bytes);
    }
    for (std::byte*& memory : memory_) memory = step.arena.take_scratch(most);
  }

  QuantizedTensor& of(std::size_t index) {
    Linear& layer = *layers_[index];
    if (is_uncast(layer)) return layer.output_gradient(QuantizedTensor(layer.sites().dy, *uncast_, step_.one));
    std::byte* next = memory_[index % 2];
    return layer.output_gradient(place(layer, [&](std::size_t piece) {
      std::byte* const taken = next;
      next += aligned(piece);
      return taken;
    }));
  }

 private:
  static std::size_t aligned(std::size_t bytes) { return (bytes + 255) / 256 * 256; }

  bool is_uncast(const Linear& layer) const { return uncast_ && step_.can_skip_cast(layer.sites().dy, *uncast_); }

  template <class Take>
  QuantizedTensor place(Linear& layer, Take take) const {
    return {layer.sites().dy, step_.tokens(), layer.shape().out, Copies::both, step_.engine.sharing(), take};
  }

  Step& step_;
  std::vector<Linear*> layers_;
  std::optional<View> uncast_;
  std::array<std::byte*, 2> memory_{};
};

}  // namespace quaver
