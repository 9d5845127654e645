// The processes that train together, called ranks, and what they say to each other. Data is in device memory, and a
// collective is enqueued like an operation; what the hosts agree on is in host memory, and they wait for it. NCCL and
// MPI carry the bytes; a process by itself needs neither.
//
// Every rank makes the same calls in the same order.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "comm/whereabouts.h"

namespace quaver {

class Device;

// Exit status of ranks that one of them had to end, so that whoever started them can tell it from a refused config.
inline constexpr int lost_rank_status = 75;

// Bytes in device memory to or from another rank.
struct Message {
  int rank = 0;
  void* data = nullptr;
  std::size_t bytes = 0;
};

class Communicator {
 public:
  Communicator() = default;
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual std::string name_of(int rank) const = 0;  // "rank 3 on node-7"

  // Collectives of device memory go behind the operations of this device from now on.
  virtual void attach(Device&) {}

  // Device memory. Every message to a rank is received there by one from this rank, of the same size and in the same
  // order; none goes to the rank itself.
  void exchange(std::span<const Message> sent, std::span<const Message> received) {
    for (const Message& message : sent) sent_bytes_ += message.bytes;
    timed([&] { move(sent, received); });
  }
  // `all` has `bytes` of each rank, in the order of the ranks: each has filled in its own and gets those of the others.
  void all_gather(void* all, std::size_t bytes) {
    sent_bytes_ += bytes * static_cast<std::size_t>(size() - 1);
    timed([&] { gather(all, bytes); });
  }
  // Of device memory, by this rank and so far; what a graph sends when it is replayed is not counted.
  std::size_t sent_bytes() const { return sent_bytes_; }

  // Calls `use` with the seconds that exchange and all_gather have taken on this rank so far, waiting for other ranks
  // included; when, as Device::read.
  using UseSeconds = std::function<void(double)>;
  virtual void read_seconds(const UseSeconds& use) { use(seconds_); }

  // all_gather in host memory.
  void all_gather_host(void* all, std::size_t bytes) {
    const Wait wait(*whereabouts_, &Whereabouts::waits_for_ranks);
    gather_host(all, bytes);
  }

  // Of this rank; may be read from any thread.
  const std::shared_ptr<Whereabouts>& whereabouts() const { return whereabouts_; }

  // Ends every rank, wherever it is.
  [[noreturn]] virtual void abort() = 0;

  bool is_first() const { return rank() == 0; }
  bool is_alone() const { return size() == 1; }

 protected:
  // One that works for another shares its whereabouts.
  explicit Communicator(std::shared_ptr<Whereabouts> whereabouts) : whereabouts_(std::move(whereabouts)) {}

 private:
  template <class Collective>
  void timed(const Collective& collective) {
    const Wait wait(*whereabouts_, &Whereabouts::waits_for_ranks);
    const auto start = std::chrono::steady_clock::now();
    collective();
    seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  virtual void move(std::span<const Message> sent, std::span<const Message> received) = 0;
  virtual void gather(void* all, std::size_t bytes) = 0;
  virtual void gather_host(void* all, std::size_t bytes) = 0;

  std::shared_ptr<Whereabouts> whereabouts_ = std::make_shared<Whereabouts>();
  std::size_t sent_bytes_ = 0;
  double seconds_ = 0;
};

// A process by itself.
Communicator& single_process();

std::string host_name();  // of this machine

}  // namespace quaver
