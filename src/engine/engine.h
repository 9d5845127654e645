// The whole contract with a device's engine: it runs each operation of operations.h. The CPU engine (cpu/) is the
// readable reference that other engines must agree with: casts bit for bit, sums within a stated tolerance. Layers know
// this interface and no engine; an engine knows no layer.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "engine/device.h"
#include "engine/operations.h"

namespace quaver {

// How a GEMM of two operands runs on a device: as they are stored, emulated in a higher precision, or not at all.
enum class SupportLevel : std::uint8_t { native, emulated, unavailable };

struct Support {
  SupportLevel level = SupportLevel::native;
  std::string how = {};  // in words: by what, or through what and why
};

// Scales for the next step, unless this one is skipped: summary->skip is raised where the loss is not finite or one of
// `must_not_saturate` saturated, and no scale changes then.
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

  // What a GEMM does with operands stored so, whatever their shapes. Unless an engine says otherwise they are decoded
  // to FP32, which holds them exactly.
  virtual Support support(const QuantSpec& a, const QuantSpec& b) {
    const bool as_they_are = a.format == Format::f32 && b.format == Format::f32;
    if (as_they_are) return {SupportLevel::native, "FP32 GEMMs"};
    return {SupportLevel::emulated, "decoded to FP32, which holds every value exactly"};
  }

  // What matrices that are no operand are stored in, and whether low-precision codes are needed once for each GEMM that
  // reads them (tensor cores read FP8 along the reduction only) or may be shared where that is exact.
  virtual Format high_precision() const { return Format::f32; }
  virtual Sharing sharing() const { return Sharing::where_exact; }

  // What GEMMs accumulate in unless a config says otherwise.
  virtual Accumulators accumulators() const { return {}; }

  // Sites are host objects. upload_scales: casts from now on use the sites' present scales. fetch_statistics: enqueues
  // the transfer of what casts saw since the last time to the sites' `seen`, and calls `then` when it is there: in the
  // device's next synchronize() at the latest. peek_statistics: the same, but `seen` has it during `then` alone and
  // nothing is taken away.
  virtual void upload_scales(std::span<Site* const>) {}
  virtual void fetch_statistics(std::span<Site* const>, const std::function<void()>& then) { then(); }
  virtual void peek_statistics(std::span<Site* const>, const std::function<void()>& then) { then(); }

  // Computes the next step's delayed scales where the statistics are, before those are fetched; the host, which learns
  // the statistics later, computes the same (ScaleBook::end_step is the reference). False, with nothing done, where the
  // host must do it before anything is cast.
  virtual bool advance_scales(const AdvanceScales&) { return false; }

  // The kernels that an engine chose by measuring them, as text; empty where it measures none. Given the text of another
  // engine it chooses the same, and measures nothing any more: what ranks need to compute the same bits.
  virtual std::string tuning() const { return {}; }
  virtual void fix_tuning(const std::string&) {}

  void wait_for_statistics(std::span<Site* const> sites) {
    fetch_statistics(sites, [] {});
    device().synchronize();
  }
};

// An engine that treats all operations alike: run(op) calls Derived::each(op), a template.
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
