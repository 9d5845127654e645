// TensorBoard's event files, as far as scalars need them: framed records with checksums, each an Event message.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace quaver {

struct TensorboardScalar {
  std::string tag;
  float value = 0;
};

class TensorboardEvents {
 public:
  using Sink = std::function<void(std::span<const std::byte>)>;

  // Writes the record that says which version of the format follows.
  TensorboardEvents(Sink sink, double wall_time);

  // One Event with all the scalars of a step; several where they are many. None for no scalars.
  void write(double wall_time, std::uint64_t step, std::span<const TensorboardScalar> scalars);

 private:
  void frame(const std::string& message);

  Sink sink_;
};

}  // namespace quaver
