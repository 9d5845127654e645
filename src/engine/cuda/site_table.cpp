#include "engine/cuda/site_table.h"

#include <bit>
#include <cstring>
#include <limits>

namespace quaver::cuda {

namespace {

constexpr unsigned int infinity_bits = 0x7F800000U;

SiteStatistics nothing_seen() {
  SiteStatistics empty{};
  empty.min_nonzero = infinity_bits;
  return empty;
}

void add(const SiteStatistics& from, CastStatistics& to) {
  if (from.count == 0) return;
  CastStatistics seen;
  seen.count = from.count;
  seen.nonfinite = from.nonfinite;
  seen.saturated = from.saturated;
  seen.underflowed = from.underflowed;
  seen.amax = std::bit_cast<float>(from.amax);
  seen.min_nonzero = std::bit_cast<float>(from.min_nonzero);
  seen.sum = from.sum;
  seen.sum2 = from.sum2;
  seen.sum4 = from.sum4;
  seen.error2 = from.error2;
  for (std::size_t i = 0; i < seen.binades.size(); ++i) seen.binades[i] = from.binades[i];
  seen.full = from.full_count == from.count;
  to.merge(seen);
}

}  // namespace

SiteTable::~SiteTable() {
  for (const Block& block : blocks_) {
    cudaFree(block.scales);
    cudaFree(block.statistics);
  }
}

std::size_t SiteTable::index_of(const Site& site) {
  const auto [found, added] = index_.try_emplace(&site, index_.size());
  if (!added) return found->second;
  const std::size_t index = found->second;
  if (index % block_slots == 0) {
    Block block;
    check(cudaMalloc(reinterpret_cast<void**>(&block.scales), block_slots * sizeof(float)), "allocating scales");
    check(cudaMalloc(reinterpret_cast<void**>(&block.statistics), block_slots * sizeof(SiteStatistics)),
          "allocating statistics");
    const std::vector<SiteStatistics> empty(block_slots, nothing_seen());
    check(cudaMemset(block.scales, 0, block_slots * sizeof(float)), "clearing scales");
    check(cudaMemcpy(block.statistics, empty.data(), block_slots * sizeof(SiteStatistics), cudaMemcpyHostToDevice),
          "clearing statistics");
    blocks_.push_back(block);
  }
  published_.push_back(0);
  return index;
}

SiteSlot SiteTable::slot(const Site& site, bool observe) {
  const std::size_t index = index_of(site);
  const Block& block = blocks_[index / block_slots];
  float* scale = block.scales + index % block_slots;
  if (published_[index] != site.scale && !gpu_.recording()) {
    published_[index] = site.scale;
    check(cudaMemcpyAsync(scale, &site.scale, sizeof(float), cudaMemcpyHostToDevice, gpu_.stream()),
          "publishing a scale");
  }
  return {scale, observe ? block.statistics + index % block_slots : nullptr};
}

void SiteTable::publish(std::span<Site* const> sites) {
  for (const Site* site : sites) slot(*site, false);
}

void SiteTable::collect(std::span<Site* const> sites) {
  for (const Site* site : sites) index_of(*site);
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    host_.resize(block_slots * blocks_.size());
    check(cudaMemcpyAsync(host_.data() + b * block_slots, blocks_[b].statistics, block_slots * sizeof(SiteStatistics),
                          cudaMemcpyDeviceToHost, gpu_.stream()),
          "collecting statistics");
  }
  gpu_.synchronize();
  const SiteStatistics empty = nothing_seen();
  for (Site* site : sites) {
    const std::size_t index = index_of(*site);
    if (host_[index].count == 0) continue;
    add(host_[index], site->seen);
    check(cudaMemcpyAsync(blocks_[index / block_slots].statistics + index % block_slots, &empty, sizeof(empty),
                          cudaMemcpyHostToDevice, gpu_.stream()),
          "clearing statistics");
  }
}

}  // namespace quaver::cuda
