// One engine with memory for an operation's inputs and outputs, to run it again and again from the same start.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/pair.h"

namespace quaver::test {

class Workbench {
 public:
  explicit Workbench(Engine& engine) : engine_(engine) {}
  ~Workbench();
  Workbench(const Workbench&) = delete;
  Workbench& operator=(const Workbench&) = delete;

  Engine& engine() { return engine_; }
  Format high_precision() const { return engine_.high_precision(); }

  // Normal numbers around `mean`, other ones for each seed. What an operation changes in place belongs here too.
  View input(Size rows, Size cols, Format format, float std = 1, float mean = 0);
  View input(Size rows, Size cols) { return input(rows, cols, high_precision()); }
  View output(Size rows, Size cols, Format format);
  View output(Size rows, Size cols) { return output(rows, cols, high_precision()); }
  QuantizedTensor& tensor(const SiteSpec& spec, Size rows, Size cols, float scale, Copies copies = Copies::both);
  std::span<const std::int32_t> tokens(Size count, Size vocab);
  std::uint32_t* counter();  // the seed
  template <class T>
  T* figure(T start) {  // reset to `start` before each run
    return reinterpret_cast<T*>(figure_memory(&start, sizeof(T)));
  }

  void fill(std::uint32_t seed);     // everything as before a first run
  std::vector<std::byte> results();  // inputs, outputs, codes, statistics: all that a run may have changed

 private:
  struct Place {
    Buffer memory;
    std::function<std::vector<std::byte>(std::uint32_t seed)> contents;
  };
  std::byte* figure_memory(const void* start, std::size_t bytes);
  Place& add(std::size_t bytes, std::function<std::vector<std::byte>(std::uint32_t)> contents);

  Engine& engine_;
  std::vector<Place> places_;
  std::vector<std::unique_ptr<Site>> sites_;
  std::vector<std::unique_ptr<QuantizedTensor>> tensors_;
};

// An operation, or a few, set up on a workbench: returns what runs it.
struct Scenario {
  std::string name;
  std::function<std::function<void()>(Workbench&)> set_up;
};
std::vector<Scenario> scenarios();

}  // namespace quaver::test
