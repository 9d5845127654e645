#include "engine/cuda/runtime/site_table.h"

#include <algorithm>
#include <bit>

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
  cudaFree(empty_);
}

void SiteTable::add_block() {
  const std::size_t bytes = block_slots * sizeof(SiteStatistics);
  const auto allocate = [](auto*& memory, std::size_t size) {
    check(cudaMalloc(reinterpret_cast<void**>(&memory), size), "allocating slots of sites");
  };
  if (empty_ == nullptr) {
    allocate(empty_, bytes);
    const std::vector<SiteStatistics> empty(block_slots, nothing_seen());
    check(cudaMemcpy(empty_, empty.data(), bytes, cudaMemcpyHostToDevice), "clearing statistics");
  }
  Block block;
  allocate(block.scales, block_slots * sizeof(float));
  allocate(block.statistics, bytes);
  check(cudaMemset(block.scales, 0, block_slots * sizeof(float)), "clearing scales");
  check(cudaMemcpy(block.statistics, empty_, bytes, cudaMemcpyDeviceToDevice), "clearing statistics");
  blocks_.push_back(block);
}

std::size_t SiteTable::index_of(const Site& site) {
  const auto [found, added] = index_.try_emplace(&site, index_.size());
  if (!added) return found->second;
  if (found->second % block_slots == 0) add_block();
  on_device_.push_back(0);
  return found->second;
}

SiteSlot SiteTable::slot(const Site& site, bool observe) {
  const std::size_t index = index_of(site);
  if (on_device_[index] != site.scale && !gpu_.capturing()) {
    on_device_[index] = site.scale;
    device_.upload(&site.scale, scale_at(index), sizeof(float));
  }
  return {scale_at(index), observe ? statistics_at(index) : nullptr};
}

// One transfer per block that has a scale which changed.
void SiteTable::upload_scales(std::span<Site* const> sites) {
  std::vector<bool> changed(blocks_.size());
  for (const Site* site : sites) {
    const std::size_t index = index_of(*site);
    changed.resize(blocks_.size());
    if (on_device_[index] == site->scale) continue;
    on_device_[index] = site->scale;
    changed[index / block_slots] = true;
  }
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    if (!changed[block]) continue;
    const std::size_t first = block * block_slots;
    const std::size_t count = std::min(block_slots, on_device_.size() - first);
    device_.upload(on_device_.data() + first, blocks_[block].scales, count * sizeof(float));
  }
}

// Slots that follow each other are read, and cleared, by one transfer.
void SiteTable::fetch_statistics(std::span<Site* const> sites, const std::function<void()>& then) {
  if (sites.empty()) return then();
  for (std::size_t i = 0; i < sites.size();) {
    const std::size_t first = index_of(*sites[i]);
    std::size_t count = 1;
    while (i + count < sites.size() && (first + count) % block_slots != 0 &&
           index_of(*sites[i + count]) == first + count) {
      ++count;
    }
    const auto run = sites.subspan(i, count);
    i += count;
    const std::size_t bytes = count * sizeof(SiteStatistics);
    device_.read(statistics_at(first), bytes,
                 [seen = std::vector<Site*>(run.begin(), run.end()),
                  then = i == sites.size() ? then : std::function<void()>()](const std::byte* data) {
                   const auto* statistics = reinterpret_cast<const SiteStatistics*>(data);
                   for (std::size_t s = 0; s < seen.size(); ++s) add(statistics[s], seen[s]->seen);
                   if (then) then();
                 });
    check(cudaMemcpyAsync(statistics_at(first), empty_, bytes, cudaMemcpyDeviceToDevice, gpu_.stream()),
          "clearing statistics");
  }
}

}  // namespace quaver::cuda
