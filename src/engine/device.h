// Where operations run: its memory, its stream of work, and what the host may ask of it. Operations (operations.h) are
// separate: code that only copies or waits needs a Device, and a communicator between several devices belongs here too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

namespace quaver {

enum class HardwareKind : std::uint8_t { cpu, gpu };

// What a device is, as far as memory plans depend on it.
struct Hardware {
  HardwareKind kind = HardwareKind::cpu;
  int threads = 0;       // of the CPU; 0: all
  int architecture = 0;  // of the GPU: 90 for Hopper
};

class Device {
 public:
  virtual ~Device() = default;

  virtual Hardware hardware() const = 0;

  // Device memory, aligned for any use, cleared to zero. Views and every pointer and span in an operation point into
  // such memory (but for the lists of MeasureGradients and ClipGradients); the host reaches it through upload, read and
  // download alone.
  virtual std::shared_ptr<std::byte> allocate(std::size_t bytes) = 0;

  // The host's bytes are copied before it returns.
  virtual void upload(const void* host, void* device, std::size_t bytes) = 0;

  // Enqueues a copy to the host and returns. `use` is called with the bytes at that point of the stream: in the next
  // synchronize() at the latest, in the order of the calls.
  using Use = std::function<void(const std::byte*)>;
  virtual void read(const void* device, std::size_t bytes, const Use& use) = 0;

  // Calls work(), which enqueues, and `use` with the seconds that the device took from its beginning to its end; when,
  // as for read.
  using UseSeconds = std::function<void(double)>;
  virtual void time(const std::function<void()>& work, const UseSeconds& use) = 0;

  // Waits for everything enqueued, then calls what read() and time() were given.
  virtual void synchronize() = 0;

  // Waits for the bytes, as synchronize() does.
  virtual void download(const void* device, void* host, std::size_t bytes) = 0;

  // Calls work(), which only runs operations. A device may capture them the first time (a CUDA graph) and replay the
  // capture when the same key comes again: the key identifies all that the operations depend on, except the contents of
  // device memory and the uploaded scales.
  virtual void replay(std::uint64_t key, const std::function<void()>& work) = 0;

  // Calls work(), now or as late as somebody waits for it. Its operations and collectives run beside those that are
  // enqueued after it, behind all that were enqueued before and behind what was put aside before. They may not need
  // workspace. Returns their place: after wait_for(place), what is enqueued next runs behind them. What is replayed
  // waits for what it puts aside.
  using Place = std::size_t;
  static constexpr Place nowhere = 0;
  virtual Place aside(const std::function<void()>& work) {
    work();
    return nowhere;
  }
  virtual void wait_for(Place) {}
  virtual void wait_for_aside() {}  // for all of it

  virtual std::size_t free_memory() const = 0;      // bytes that allocate() could still return
  virtual std::size_t workspace_bytes() const = 0;  // allocated by operations for themselves
};

}  // namespace quaver
