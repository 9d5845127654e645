// An engine runs the operations of operations.h on a device. The CPU engine (cpu/) is the readable reference that other
// engines must agree with: casts bit for bit, sums within a stated tolerance. Layers know this interface and no engine;
// an engine knows no layer.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "engine/device.h"
#include "engine/operations.h"

namespace quaver {

// How a GEMM runs: on the stored codes (tensor cores of that format), on operands dequantized to a higher precision
// that holds them exactly, or not at all.
enum class SupportLevel : std::uint8_t { native, emulated, unavailable };

struct Support {
  SupportLevel level = SupportLevel::native;
  std::string how = {};  // in words, for users: which units, or which precision it is emulated in and why
};

// Delayed scales of the next step from the amax of this one. Sets summary->skip where the loss is not finite or one of
// `must_not_saturate` saturated (FP16 gradients under an adaptive loss scale). Where it is set no scale changes.
struct AdvanceScales {
  std::span<const DelayedScale> delayed;
  std::span<const Site* const> must_not_saturate;
  const double* loss_sum = nullptr;    // in device memory
  GradientSummary* summary = nullptr;  // in device memory
};

// `virtual void run(const Operation&) = 0` for each operation of a list.
template <class List>
class Runs;
template <class Operation>
class Runs<OperationList<Operation>> {
 public:
  virtual ~Runs() = default;
  virtual void run(const Operation& op) = 0;
};
template <class Operation, class... Rest>
class Runs<OperationList<Operation, Rest...>> : public Runs<OperationList<Rest...>> {
 public:
  using Runs<OperationList<Rest...>>::run;
  virtual void run(const Operation& op) = 0;
};

class Engine : public Runs<Operations> {
 public:
  virtual std::string name() const = 0;
  virtual Device& device() = 0;

  // How a GEMM of two such operands runs, whatever their shapes. By default they are dequantized to FP32.
  virtual Support support(const QuantSpec& a, const QuantSpec& b) {
    const bool both_fp32 = a.format == Format::f32 && b.format == Format::f32;
    if (both_fp32) return {SupportLevel::native, "FP32 GEMMs"};
    return {SupportLevel::emulated, "decoded to FP32, which holds every value exactly"};
  }

  // The format of all matrices that are no operand of a GEMM.
  virtual Format high_precision() const { return Format::f32; }

  // Whether rowwise and columnwise codes are stored apart, because tensor cores read FP8 contiguous along K only, or
  // may be one copy where their scales allow it.
  virtual Sharing sharing() const { return Sharing::where_exact; }

  // What GEMMs accumulate in unless a config says otherwise.
  virtual Accumulators accumulators() const { return {}; }

  // Sites are objects of the host; their scales and statistics also exist on the device.
  // upload_scales: casts that follow use the sites' scales as the host has them now.
  // fetch_statistics: enqueues a download of amax and counts into the sites' `seen`, then clears them on the device;
  // calls `then` when they have arrived, in the device's next synchronize() at the latest.
  // peek_statistics: the same, but clears nothing, and `seen` holds them only while `then` runs.
  virtual void upload_scales(std::span<Site* const>) {}
  virtual void fetch_statistics(std::span<Site* const>, const std::function<void()>& then) { then(); }
  virtual void peek_statistics(std::span<Site* const>, const std::function<void()>& then) { then(); }

  // Computes the next step's delayed scales on the device, before the statistics are fetched; the host computes the
  // same ones when it has them (ScaleBook::end_step is the reference). False, with nothing done, where the scales are
  // on the host alone, which must then compute them before the next cast.
  virtual bool advance_scales(const AdvanceScales&) { return false; }

  // The kernels that an engine chose by measuring them, as text; empty where it measures none. Given the text of
  // another engine it chooses the same, and measures nothing any more: what ranks need to compute the same bits.
  virtual std::string tuning() const { return {}; }
  virtual void fix_tuning(const std::string&) {}

  void wait_for_statistics(std::span<Site* const> sites) {
    fetch_statistics(sites, [] {});
    device().synchronize();
  }
};

// For engines that treat all operations alike (timing, memory planning): run(op) calls the template Derived::each(op).
template <class Derived, class Base, class List = Operations>
class RunsEach;
template <class Derived, class Base>
class RunsEach<Derived, Base, OperationList<>> : public Base {
  using Base::Base;
};
template <class Derived, class Base, class Operation, class... Rest>
class RunsEach<Derived, Base, OperationList<Operation, Rest...>>
    : public RunsEach<Derived, Base, OperationList<Rest...>> {
 public:
  using RunsEach<Derived, Base, OperationList<Rest...>>::RunsEach;
  using RunsEach<Derived, Base, OperationList<Rest...>>::run;
  void run(const Operation& op) final { static_cast<Derived*>(this)->each(op); }
};

// The engine of this machine's CPU. threads = 0: all cores.
std::unique_ptr<Engine> make_cpu_engine(int threads);

}  // namespace quaver
