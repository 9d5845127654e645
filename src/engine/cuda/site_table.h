// Sites on the device: every site has a slot with its scale, which casts read, and the statistics that casts add to.
// The host publishes scales and collects statistics once a step; between the two nothing leaves the device.
#pragma once

#include <cstdint>
#include <cuda_runtime.h>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/cuda/gpu.h"
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
  explicit SiteTable(Gpu& gpu) : gpu_(gpu) {}
  ~SiteTable();
  SiteTable(const SiteTable&) = delete;
  SiteTable& operator=(const SiteTable&) = delete;

  // The site's slot, its scale up to date.
  SiteSlot slot(const Site& site, bool observe);

  void publish(std::span<Site* const> sites);
  void collect(std::span<Site* const> sites);

 private:
  std::size_t index_of(const Site& site);

  static constexpr std::size_t block_slots = 4096;
  struct Block {
    float* scales = nullptr;
    SiteStatistics* statistics = nullptr;
  };
  Gpu& gpu_;
  std::unordered_map<const Site*, std::size_t> index_;
  std::vector<float> published_;  // by index
  std::vector<Block> blocks_;
  std::vector<SiteStatistics> host_;
};

}  // namespace quaver::cuda
