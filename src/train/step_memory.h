// The arena that micro-steps run in, as large as a dry run says, and the generation of what their operations are: an
// engine replays a CUDA graph only within one.
#pragma once

#include <memory>
#include <span>

#include "train/memory_plan.h"

namespace quaver {

class StepMemory {
 public:
  // Makes room for a step of the model as its sites are stored now. A new generation begins.
  void plan(Model& model, const Config& config, Engine& engine);

  // A new generation where another number of sites has a scale: the first cast of a site without one takes the tensor's
  // own amax, which is another operation.
  void note_scales(std::span<const Site* const> sites);

  Arena& arena() { return arena_; }
  Size capacity() const { return static_cast<Size>(arena_.capacity()); }
  Size saved() const { return static_cast<Size>(saved_); }  // of the capacity, kept for backward

  std::uint64_t generation() const { return generation_; }
  // After a look at other formats, when all is as it was: its graphs are still good.
  void return_to(std::uint64_t generation) { generation_ = generation; }

 private:
  void begin_generation() { generation_ = ++generations_; }

  std::shared_ptr<std::byte> memory_;
  Arena arena_;
  std::size_t saved_ = 0;
  std::uint64_t generation_ = 0;
  std::uint64_t generations_ = 0;  // that there have been
  std::ptrdiff_t known_scales_ = -1;
};

}  // namespace quaver
