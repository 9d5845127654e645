// An engine that computes nothing and counts the memory that another kind of engine would need: allocations and the
// workspace of operations. A step run on it tells what a real one needs, on a machine that may have neither the memory
// nor the device.
#pragma once

#include <algorithm>
#include <array>

#include "engine/engine.h"

namespace quaver {

inline std::byte nowhere{};  // where a tensor of a dry run pretends to be stored

class SizingDevice final : public Device {
 public:
  explicit SizingDevice(const Hardware& hardware) : hardware_(hardware) {}

  Hardware hardware() const override { return hardware_; }
  // Addresses without memory behind them, each only once: views may be compared and must not be touched.
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  void upload(const void*, void*, std::size_t) override {}
  void read(const void*, std::size_t, const Use&) override {}
  void time(const std::function<void()>& work, const UseSeconds&) override { work(); }
  void download(const void*, void*, std::size_t) override {}
  void synchronize() override {}
  void replay(std::uint64_t, const std::function<void()>& work) override { work(); }
  std::size_t free_memory() const override { return 0; }
  std::size_t workspace_bytes() const override;

  std::size_t allocated_bytes() const { return allocated_; }
  // Peak transient memory of a single operation, freed before it returns.
  std::size_t transient_bytes() const { return static_cast<std::size_t>(transient_); }

  // Workspace in a slot, which grows to the largest request.
  void take(std::size_t slot, Size bytes) { slots_[slot] = std::max(slots_[slot], bytes); }
  // Memory of this operation alone, beside what the one around it holds.
  void take_transient(Size bytes) { transient_ = std::max(transient_, held_ + bytes); }

  class Hold {
   public:
    Hold(SizingDevice& device, Size bytes) : device_(device), bytes_(bytes) {
      device_.take_transient(bytes);
      device_.held_ += bytes;
    }
    ~Hold() { device_.held_ -= bytes_; }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    SizingDevice& device_;
    Size bytes_;
  };

 private:
  Hardware hardware_;
  std::size_t allocated_ = 0;
  std::array<Size, 16> slots_{};
  Size transient_ = 0;
  Size held_ = 0;
};

class SizingEngine : public Engine {
 public:
  std::string name() const final { return "sizing"; }
  SizingDevice& device() final { return device_; }
  Format high_precision() const final { return high_; }
  Sharing sharing() const final { return sharing_; }

 protected:
  SizingEngine(const Hardware& hardware, Format high, Sharing sharing)
      : device_(hardware), high_(high), sharing_(sharing) {}

 private:
  SizingDevice device_;
  Format high_;
  Sharing sharing_;
};

// An engine's memory plan: Derived::workspace(op) counts the workspace of an operation. Operations without workspace
// need no overload.
template <class Derived>
class SizesEach : public RunsEach<SizesEach<Derived>, SizingEngine> {
 public:
  using RunsEach<SizesEach<Derived>, SizingEngine>::RunsEach;

  template <class Operation>
  void each(const Operation& op) {
    auto& engine = static_cast<Derived&>(*this);
    if constexpr (requires { engine.workspace(op); }) engine.workspace(op);
  }
};

// The memory that an engine on this hardware with this high precision would need. The CPU engine supports FP32 only.
std::unique_ptr<SizingEngine> make_sizing_engine(const Hardware& hardware, Format high);
std::unique_ptr<SizingEngine> make_cpu_sizing(int threads);
std::unique_ptr<SizingEngine> make_cuda_sizing(int architecture, Format high);

}  // namespace quaver
