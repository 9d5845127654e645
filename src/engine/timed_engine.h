// A profiling wrapper around another engine, which adds the time of every operation to its kind, and the bytes that it
// has to move at least. watching: it waits
// before and after each. recording: the device notes when each begins and ends (CUDA events), and nothing waits, so
// that the sum is what a step takes. idle: it forwards every call unchanged.
#pragma once

#include <array>
#include <chrono>

#include "engine/engine.h"
#include "engine/least_bytes.h"
#include "engine/operation_names.h"

namespace quaver {

inline constexpr std::size_t operation_kinds = static_cast<std::size_t>(OperationKind::copy) + 1;

struct OperationTime {
  double seconds = 0;
  Size calls = 0;
  Size bytes = 0;  // that the operations have to move at least; those of transfers
};

// The device of a timed engine: transfers are timed as copies, allocations by themselves, and waits are counted.
class TimedDevice final : public Device {
 public:
  enum class Mode : std::uint8_t { idle, watching, recording };

  explicit TimedDevice(Device& device) : device_(device) {}

  Hardware hardware() const override { return device_.hardware(); }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  void upload(const void* host, void* device, std::size_t bytes) override;
  void read(const void* device, std::size_t bytes, const Use& use) override;
  void time(const std::function<void()>& work, const UseSeconds& use) override { device_.time(work, use); }
  void download(const void* device, void* host, std::size_t bytes) override;
  void synchronize() override;
  void replay(std::uint64_t key, const std::function<void()>& work) override;
  std::size_t free_memory() const override { return device_.free_memory(); }
  std::size_t workspace_bytes() const override { return device_.workspace_bytes(); }

  void set_mode(Mode mode) { mode_ = mode; }
  void reset();
  const OperationTime& time(OperationKind kind) const { return times_[static_cast<std::size_t>(kind)]; }
  const OperationTime& allocations() const { return allocations_; }  // their bytes are those allocated
  double total_seconds() const;
  Size waits() const { return waits_; }  // calls of synchronize and download so far

  template <class Work>
  void timed(OperationKind kind, Size bytes, const Work& work) {
    OperationTime& time = times_[static_cast<std::size_t>(kind)];
    if (mode_ == Mode::idle) return work();
    time.bytes += bytes;
    if (mode_ == Mode::recording) {
      ++time.calls;
      return device_.time(work, [&time](double seconds) { time.seconds += seconds; });
    }
    device_.synchronize();
    const auto start = std::chrono::steady_clock::now();
    work();
    device_.synchronize();
    time.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    ++time.calls;
  }

 private:
  Device& device_;
  Mode mode_ = Mode::idle;
  std::array<OperationTime, operation_kinds> times_{};
  OperationTime allocations_;
  Size waits_ = 0;
};

class TimedEngine final : public RunsEach<TimedEngine, Engine> {
 public:
  using Mode = TimedDevice::Mode;

  explicit TimedEngine(Engine& engine) : engine_(engine), device_(engine.device()) {}

  void set_mode(Mode mode) { device_.set_mode(mode); }
  void reset() { device_.reset(); }
  const OperationTime& time(OperationKind kind) const { return device_.time(kind); }
  const OperationTime& allocations() const { return device_.allocations(); }
  double total_seconds() const { return device_.total_seconds(); }
  Size waits() const { return device_.waits(); }

  std::string name() const override { return engine_.name(); }
  Device& device() override { return device_; }
  Support support(const QuantSpec& a, const QuantSpec& b) override { return engine_.support(a, b); }
  Format high_precision() const override { return engine_.high_precision(); }
  Sharing sharing() const override { return engine_.sharing(); }
  Accumulators accumulators() const override { return engine_.accumulators(); }
  void upload_scales(std::span<Site* const> sites) override;
  void fetch_statistics(std::span<Site* const> sites, const std::function<void()>& then) override;
  void peek_statistics(std::span<Site* const> sites, const std::function<void()>& then) override;
  bool advance_scales(const AdvanceScales& op) override;

  template <class Operation>
  void each(const Operation& op) {
    device_.timed(kind_of(op), least_bytes(op), [&] { engine_.run(op); });
  }

 private:
  Engine& engine_;
  TimedDevice device_;
};

}  // namespace quaver
