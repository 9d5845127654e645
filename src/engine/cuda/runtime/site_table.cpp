#include "engine/cuda/runtime/site_table.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>

#include "engine/cuda/cast/advance_scales.h"

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
    check(cudaMemcpy(empty_, empty.data(), bytes, cudaMemcpyHostToDevice), "clearing statistics");  // waits
  }
  Block block;
  allocate(block.scales, block_slots * sizeof(float));
  allocate(block.statistics, bytes);
  check(cudaMemsetAsync(block.scales, 0, block_slots * sizeof(float), gpu_.stream()), "clearing scales");
  check(cudaMemcpyAsync(block.statistics, empty_, bytes, cudaMemcpyDeviceToDevice, gpu_.stream()),
        "clearing statistics");
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

template <class Each>
void SiteTable::for_each_run(std::span<Site* const> sites, const Each& each) {
  for (std::size_t i = 0; i < sites.size();) {
    const std::size_t first = index_of(*sites[i]);
    std::size_t count = 1;
    while (i + count < sites.size() && (first + count) % block_slots != 0 &&
           index_of(*sites[i + count]) == first + count) {
      ++count;
    }
    each(first, sites.subspan(i, count));
    i += count;
  }
}

// Slots that follow each other are read, and cleared, by one transfer.
void SiteTable::fetch_statistics(std::span<Site* const> sites, const std::function<void()>& then) {
  for_each_run(sites, [&](std::size_t first, std::span<Site* const> run) {
    const std::size_t bytes = run.size() * sizeof(SiteStatistics);
    device_.read(statistics_at(first), bytes,
                 [run = std::vector<Site*>(run.begin(), run.end())](const std::byte* data) {
                   const auto* statistics = reinterpret_cast<const SiteStatistics*>(data);
                   for (std::size_t i = 0; i < run.size(); ++i) add(statistics[i], run[i]->seen);
                 });
    check(cudaMemcpyAsync(statistics_at(first), empty_, bytes, cudaMemcpyDeviceToDevice, gpu_.stream()),
          "clearing statistics");
  });
  device_.read(nullptr, 0, [then](const std::byte*) { then(); });
}

void SiteTable::peek_statistics(std::span<Site* const> sites, const std::function<void()>& then) {
  using Kept = std::vector<std::pair<Site*, CastStatistics>>;
  const auto kept = std::make_shared<Kept>();
  for_each_run(sites, [&](std::size_t first, std::span<Site* const> run) {
    const std::size_t bytes = run.size() * sizeof(SiteStatistics);
    device_.read(statistics_at(first), bytes,
                 [kept, run = std::vector<Site*>(run.begin(), run.end())](const std::byte* data) {
                   const auto* statistics = reinterpret_cast<const SiteStatistics*>(data);
                   for (std::size_t i = 0; i < run.size(); ++i) {
                     kept->emplace_back(run[i], run[i]->seen);
                     add(statistics[i], run[i]->seen);
                   }
                 });
  });
  device_.read(nullptr, 0, [kept, then](const std::byte*) {
    then();
    for (auto& [site, seen] : *kept) site->seen = seen;
  });
}

void SiteTable::reserve_jobs(std::size_t bytes) {
  if (bytes <= jobs_bytes_) return;
  jobs_ = device_.allocate(bytes);
  jobs_bytes_ = bytes;
}

// The scales are read back, so that the host knows which of them the device has already.
void SiteTable::advance_scales(const AdvanceScales& op) {
  std::vector<ScaleJob> jobs;
  for (const DelayedScale& delayed : op.delayed) {
    const std::size_t index = index_of(*delayed.site);
    const QuantSpec& spec = delayed.site->spec.rows;
    jobs.push_back({.scale = scale_at(index),
                    .statistics = statistics_at(index),
                    .limit = tensor_limit(spec),
                    .kept = kept_scale_bits(spec.scale),
                    .kept_amax = delayed.kept_amax,
                    .present_amax = delayed.present_amax,
                    .has_history = delayed.has_history});
  }
  std::vector<const SiteStatistics*> watched;
  for (const Site* site : op.must_not_saturate) watched.push_back(statistics_at(index_of(*site)));
  const std::size_t jobs_bytes = jobs.size() * sizeof(ScaleJob);
  const std::size_t watched_bytes = watched.size() * sizeof(void*);
  reserve_jobs(jobs_bytes + watched_bytes);
  device_.upload(jobs.data(), jobs_.get(), jobs_bytes);
  device_.upload(watched.data(), jobs_.get() + jobs_bytes, watched_bytes);
  cuda::advance_scales(gpu_, reinterpret_cast<const ScaleJob*>(jobs_.get()), static_cast<int>(jobs.size()),
                       {.must_not_saturate = reinterpret_cast<const SiteStatistics* const*>(jobs_.get() + jobs_bytes),
                        .count = static_cast<int>(watched.size()),
                        .loss_sum = op.loss_sum,
                        .summary = op.summary});
  for (std::size_t block = 0; block < blocks_.size(); ++block) {
    const std::size_t first = block * block_slots;
    const std::size_t count = std::min(block_slots, on_device_.size() - first);
    device_.read(blocks_[block].scales, count * sizeof(float), [this, first, count](const std::byte* data) {
      std::memcpy(on_device_.data() + first, data, count * sizeof(float));
    });
  }
}

}  // namespace quaver::cuda
