// An engine that computes nothing and counts the memory that another kind of engine would take: what is allocated, and
// what operations need for themselves. A step run on it tells what a real one needs, on a machine that may have neither
// the memory nor the device.
#pragma once

#include <algorithm>
#include <array>

#include "engine/engine.h"

namespace quaver {

inline std::byte nowhere{};  // where a tensor that only passes through pretends to lie

class SizingEngine : public Engine {
 public:
  // Addresses without memory behind them, each only once: views may be compared and must not be touched.
  std::shared_ptr<std::byte> allocate(std::size_t bytes) final;

  // Bytes handed out so far.
  std::size_t allocated_bytes() const { return allocated_; }
  // What operations would keep for themselves after all that ran here.
  std::size_t workspace_bytes() const final;
  // The most that a single operation takes from the system and gives back before it returns.
  std::size_t passing_bytes() const { return static_cast<std::size_t>(passing_); }

  std::string name() const final { return "sizing"; }
  Format wide_format() const final { return wide_; }
  Sharing sharing() const final { return sharing_; }
  std::size_t free_memory() const final { return 0; }
  void upload(const void*, void*, std::size_t) final {}
  void download(const void*, void*, std::size_t) final {}

  void fill_zero(View) final {}
  void combine(const Combine&) final {}
  void embed(const Embed&) final {}
  void sum_columns(View, View) override {}
  void embed_backward(const EmbedBackward&) override {}
  void prepare_heads(const PrepareHeads&) override {}
  void prepare_heads_backward(const PrepareHeadsBackward&) override {}
  void measure_gradients(const MeasureGradients&) override {}

 protected:
  SizingEngine(Format wide, Sharing sharing) : wide_(wide), sharing_(sharing) {}

  // A slot of working memory, which grows to the most that was asked of it.
  void keep(std::size_t slot, Size bytes) { slots_[slot] = std::max(slots_[slot], bytes); }
  // Memory of this operation alone, beside what the one around it holds.
  void pass(Size bytes) { passing_ = std::max(passing_, held_ + bytes); }

  class Hold {
   public:
    Hold(SizingEngine& engine, Size bytes) : engine_(engine), bytes_(bytes) {
      engine_.pass(bytes);
      engine_.held_ += bytes;
    }
    ~Hold() { engine_.held_ -= bytes_; }
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;

   private:
    SizingEngine& engine_;
    Size bytes_;
  };

 private:
  Format wide_;
  Sharing sharing_;
  std::size_t allocated_ = 0;
  std::array<Size, 16> slots_{};
  Size passing_ = 0;
  Size held_ = 0;
};

// What an engine on this hardware that stores wide matrices so would take. The processors' engine knows FP32 only.
std::unique_ptr<SizingEngine> make_sizing_engine(const Hardware& hardware, Format wide);
std::unique_ptr<SizingEngine> make_cpu_sizing(int threads);
std::unique_ptr<SizingEngine> make_cuda_sizing(int architecture, Format wide);

}  // namespace quaver
