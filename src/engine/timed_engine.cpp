#include "engine/timed_engine.h"

namespace quaver {

double TimedDevice::total_seconds() const {
  double total = 0;
  for (const OperationTime& time : times_) total += time.seconds;
  return total;
}

void TimedDevice::reset() {
  times_ = {};
  allocations_ = {};
}

std::shared_ptr<std::byte> TimedDevice::allocate(std::size_t bytes) {
  if (mode_ == Mode::idle) return device_.allocate(bytes);
  const auto start = std::chrono::steady_clock::now();
  auto memory = device_.allocate(bytes);
  allocations_.seconds += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  allocations_.bytes += static_cast<Size>(bytes);
  ++allocations_.calls;
  return memory;
}

void TimedDevice::upload(const void* host, void* device, std::size_t bytes) {
  timed(OperationKind::copy, static_cast<Size>(bytes), [&] { device_.upload(host, device, bytes); });
}
void TimedDevice::read(const void* device, std::size_t bytes, const Use& use) {
  timed(OperationKind::copy, static_cast<Size>(bytes), [&] { device_.read(device, bytes, use); });
}
void TimedDevice::download(const void* device, void* host, std::size_t bytes) {
  ++waits_;
  timed(OperationKind::copy, static_cast<Size>(bytes), [&] { device_.download(device, host, bytes); });
}
void TimedDevice::synchronize() {
  ++waits_;
  device_.synchronize();
}

// A CUDA graph would hide the operations from us.
void TimedDevice::replay(std::uint64_t key, const std::function<void()>& work) {
  if (mode_ == Mode::idle) {
    device_.replay(key, work);
  } else {
    work();
  }
}

void TimedEngine::upload_scales(std::span<Site* const> sites) {
  device_.timed(OperationKind::copy, 0, [&] { engine_.upload_scales(sites); });
}
void TimedEngine::fetch_statistics(std::span<Site* const> sites, const std::function<void()>& then) {
  device_.timed(OperationKind::copy, 0, [&] { engine_.fetch_statistics(sites, then); });
}
void TimedEngine::peek_statistics(std::span<Site* const> sites, const std::function<void()>& then) {
  device_.timed(OperationKind::copy, 0, [&] { engine_.peek_statistics(sites, then); });
}
bool TimedEngine::advance_scales(const AdvanceScales& op) {
  bool advanced = false;
  device_.timed(OperationKind::optimizer, 0, [&] { advanced = engine_.advance_scales(op); });
  return advanced;
}

}  // namespace quaver
