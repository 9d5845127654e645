// This machine's memory as a device: every call is synchronous.
#pragma once

#include "engine/cpu/workspace.h"
#include "engine/device.h"

namespace quaver {

class CpuDevice final : public Device {
 public:
  // workspace: of the engine's operations, for workspace_bytes.
  CpuDevice(int threads, const Workspace& workspace) : threads_(threads), workspace_(workspace) {}

  Hardware hardware() const override { return {.kind = HardwareKind::cpu, .threads = threads_}; }
  std::shared_ptr<std::byte> allocate(std::size_t bytes) override;
  void upload(const void* host, void* device, std::size_t bytes) override;
  void read(const void* device, std::size_t bytes, const Use& use) override;
  void time(const std::function<void()>& work, const UseSeconds& use) override;
  void download(const void* device, void* host, std::size_t bytes) override;
  void synchronize() override {}
  void replay(std::uint64_t key, const std::function<void()>& work) override;
  std::size_t free_memory() const override;
  std::size_t workspace_bytes() const override { return workspace_.bytes(); }

 private:
  int threads_;
  const Workspace& workspace_;
};

}  // namespace quaver
