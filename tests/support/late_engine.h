// A CPU engine that does what is put aside as late as it may: when somebody waits for it. Whoever should have waited
// and did not finds other numbers.
#pragma once

#include <deque>
#include <memory>

#include "engine/cpu/cpu_engine.h"
#include "engine/engine.h"

namespace quaver::test {

class LateDevice final : public Device {
 public:
  explicit LateDevice(Device& device) : device_(device) {}

  Hardware hardware() const override { return device_.hardware(); }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override { return device_.allocate(bytes); }
  void upload(const void* host, void* device, std::size_t bytes) override { device_.upload(host, device, bytes); }
  void read(const void* device, std::size_t bytes, const Use& use) override { device_.read(device, bytes, use); }
  void time(const std::function<void()>& work, const UseSeconds& use) override { device_.time(work, use); }
  void download(const void* device, void* host, std::size_t bytes) override {
    synchronize();
    device_.download(device, host, bytes);
  }
  void synchronize() override {
    wait_for_aside();
    device_.synchronize();
  }
  void replay(std::uint64_t key, const std::function<void()>& work) override {
    wait_for_aside();
    device_.replay(key, work);
    if (!works_.empty()) throw std::logic_error("a pass ended and did not wait for what it had put aside");
  }
  Place aside(const std::function<void()>& work) override {
    works_.push_back(work);
    most_ = std::max(most_, works_.size());
    return ++last_;
  }
  void wait_for(Place place) override {
    while (!works_.empty() && done_ < place) {
      ++done_;
      works_.front()();
      works_.pop_front();
    }
  }
  void wait_for_aside() override { wait_for(last_); }
  std::size_t free_memory() const override { return device_.free_memory(); }
  std::size_t workspace_bytes() const override { return device_.workspace_bytes(); }

  std::size_t most() const { return most_; }  // that were put aside at a time

 private:
  Device& device_;
  std::deque<std::function<void()>> works_;
  Place done_ = nowhere;
  Place last_ = nowhere;
  std::size_t most_ = 0;
};

class LateEngine final : public RunsEach<LateEngine, Engine> {
 public:
  std::string name() const override { return engine_->name(); }
  LateDevice& device() override { return device_; }

  template <class Operation>
  void each(const Operation& op) {
    engine_->run(op);
  }

 private:
  std::unique_ptr<Engine> engine_ = make_cpu_engine(1);
  LateDevice device_{engine_->device()};
};

}  // namespace quaver::test
