// Sites on the device: every site has a slot with its scale, which casts read, and the statistics that casts add to.
// The host uploads scales and fetches statistics once per step; between the two nothing leaves the device.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>
#include <functional>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/cuda/runtime/gpu.h"
#include "engine/engine.h"
#include "tensor/site.h"

namespace quaver::cuda {

// CastStatistics as kernels add to it; amax and min_nonzero are the bits of non-negative floats, which order as the
// floats do. Counts and extrema may be added by atomics (the result does not depend on the order); the doubles must be
// added by one thread in a fixed order.
struct SiteStatistics {
  unsigned long long count;
  unsigned long long nonfinite;
  unsigned long long saturated;
  unsigned long long underflowed;
  unsigned int amax;
  unsigned int min_nonzero;
  double sum;
  double sum2;
  double sum4;
  double error2;
  unsigned long long binades[64];
  unsigned long long full_count;  // elements that the second group covers
};

// What a cast needs of its site. All on the device.
struct SiteSlot {
  const float* scale = nullptr;          // s in q = cast(x · s); 0 where it is not known
  SiteStatistics* statistics = nullptr;  // null: not observed
};

class SiteTable {
 public:
  SiteTable(Gpu& gpu, Device& device) : gpu_(gpu), device_(device) {}
  ~SiteTable();
  SiteTable(const SiteTable&) = delete;
  SiteTable& operator=(const SiteTable&) = delete;

  // The site's slot, its scale up to date.
  SiteSlot slot(const Site& site, bool observe);

  void upload_scales(std::span<Site* const> sites);
  void fetch_statistics(std::span<Site* const> sites, const std::function<void()>& then);
  void peek_statistics(std::span<Site* const> sites, const std::function<void()>& then);
  void advance_scales(const AdvanceScales& op);

 private:
  static constexpr std::size_t block_slots = 4096;
  struct Block {
    float* scales = nullptr;
    SiteStatistics* statistics = nullptr;
  };

  std::size_t index_of(const Site& site);
  void add_block();
  // Calls each(first slot, sites) for sites whose slots follow each other.
  template <class Each>
  void for_each_run(std::span<Site* const> sites, const Each& each);
  void reserve_jobs(std::size_t bytes);
  float* scale_at(std::size_t index) { return blocks_[index / block_slots].scales + index % block_slots; }
  SiteStatistics* statistics_at(std::size_t index) {
    return blocks_[index / block_slots].statistics + index % block_slots;
  }

  Gpu& gpu_;
  Device& device_;
  std::unordered_map<const Site*, std::size_t> index_;
  std::vector<float> on_device_;  // scales by index
  std::vector<Block> blocks_;
  SiteStatistics* empty_ = nullptr;  // a block of slots that have seen nothing
  std::shared_ptr<std::byte> jobs_;  // of advance_scales, on the device
  std::size_t jobs_bytes_ = 0;
};

}  // namespace quaver::cuda
