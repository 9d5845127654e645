// The CUDA engine with an NVTX range around every operation, named by its kind, which profilers such as Nsight Systems
// show. A range is what the host does to enqueue the operation: profilers project it onto the kernels launched in it.
// While a CUDA graph is captured it marks the capture, and a replay has none. Without a profiler a range is a load and
// a branch.
#pragma once

#include <memory>

#include "engine/cuda_module.h"

namespace quaver::cuda {

class RangedEngine final : public RunsEach<RangedEngine, GpuEngine> {
 public:
  explicit RangedEngine(std::unique_ptr<GpuEngine> engine) : engine_(std::move(engine)) {}

  std::string name() const override { return engine_->name(); }
  Device& device() override { return engine_->device(); }
  Support support(const QuantSpec& a, const QuantSpec& b) override { return engine_->support(a, b); }
  Format high_precision() const override { return engine_->high_precision(); }
  Sharing sharing() const override { return engine_->sharing(); }
  Accumulators accumulators() const override { return engine_->accumulators(); }
  std::string tuning() const override { return engine_->tuning(); }
  void fix_tuning(const std::string& text) override { engine_->fix_tuning(text); }
  void* own_stream() const override { return engine_->own_stream(); }
  void on_stream(void* stream, const std::function<void()>& work) override { engine_->on_stream(stream, work); }
  void upload_scales(std::span<Site* const> sites) override { engine_->upload_scales(sites); }
  void fetch_statistics(std::span<Site* const> sites, const std::function<void()>& then) override {
    engine_->fetch_statistics(sites, then);
  }
  void peek_statistics(std::span<Site* const> sites, const std::function<void()>& then) override {
    engine_->peek_statistics(sites, then);
  }
  bool advance_scales(const AdvanceScales& op) override { return engine_->advance_scales(op); }

  template <class Operation>
  void each(const Operation& op) {
    const Range range(kind_of(op));
    engine_->run(op);
  }

 private:
  // Begins and ends with its scope, also where the operation throws.
  class Range {
   public:
    explicit Range(OperationKind kind);
    ~Range();
    Range(const Range&) = delete;
    Range& operator=(const Range&) = delete;
  };

  std::unique_ptr<GpuEngine> engine_;
};

}  // namespace quaver::cuda
