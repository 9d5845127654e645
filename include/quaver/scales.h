// A scale book: the scale of each tensor from step to step. Current scaling needs none; a delayed scale follows the
// amax history of its tensor; a static one stays what it was set to.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quaver/quant_spec.h"
#include "quaver/statistics.h"

namespace quaver {

struct ScaleSettings {
  int history = 16;  // steps that the amax history holds
  HistoryRule rule = HistoryRule::max;
};

class Scales {
 public:
  explicit Scales(const ScaleSettings& settings = {});
  ~Scales();
  Scales(Scales&&) noexcept;
  Scales& operator=(Scales&&) noexcept;

  // Throws Error where the spec has no meaning or the book has the name.
  void add(const std::string& name, const QuantSpec& spec);

  // s in q = cast(x · s). 0: not known yet, the cast takes the tensor's own amax.
  float scale(const std::string& name) const;
  void set_scale(const std::string& name, float scale, const std::string& reason);

  // What a cast of this step saw; several add up. end_step takes it into the history and sets the next scales.
  void observe(const std::string& name, const CastStatistics& seen);
  void end_step();
  std::vector<float> history(const std::string& name) const;  // amax of past steps, newest last

  std::string to_json() const;
  // Scales and histories by name, from to_json() or a run's scales.json. Returns the names that the text lacks.
  std::vector<std::string> load(const std::string& json);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quaver
