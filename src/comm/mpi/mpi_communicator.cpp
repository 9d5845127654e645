// The ranks that mpirun started, over MPI: for CPU engines, whose device memory is the host's, and for what the hosts
// of GPU engines say to each other.
#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mpi.h>
#include <mutex>
#include <thread>
#include <vector>

#include "comm/agreement.h"
#include "comm/launch.h"
#include "comm/shared_module.h"
#include "quaver/error.h"

namespace quaver {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t largest_message = std::size_t{1} << 28;  // a count of MPI is an int
constexpr std::chrono::milliseconds between_beats{500};
constexpr std::chrono::seconds longest_silence{30};

void check(int status, const char* what) {
  if (status == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(status, text.data(), &length);
  throw Error(std::string("MPI: ") + what + ": " + text.data(), "the other ranks' messages may say more");
}

// Ranks share cores with each other in tests, and with the threads of OpenMP: a wait gives them up.
template <class Done>
void wait_until(Done done) {
  constexpr int eager = 200;
  for (int tries = 0; !done(); ++tries) {
    if (tries < eager) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(std::min(1000, 20 * (tries / eager))));
    }
  }
}

// Each rank tells the next one that it is alive. One that is killed is noticed by mpirun, one that is stopped is not;
// one that runs but stands still ends by itself (cli/watchdog.h).
class Heartbeat {
 public:
  Heartbeat(MPI_Comm ranks, std::vector<std::string> names) : ranks_(ranks), names_(std::move(names)) {
    MPI_Comm_rank(ranks_, &rank_);
    MPI_Comm_size(ranks_, &size_);
    if (size_ > 1) thread_ = std::thread([this] { run(); });
  }
  ~Heartbeat() {
    if (!thread_.joinable()) return;
    {
      const std::scoped_lock guard(lock_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  Heartbeat(const Heartbeat&) = delete;
  Heartbeat& operator=(const Heartbeat&) = delete;

 private:
  void run() {
    const int previous = (rank_ + size_ - 1) % size_;
    auto heard = Clock::now();
    auto looked = heard;
    std::unique_lock guard(lock_);
    while (!changed_.wait_for(guard, between_beats, [this] { return stopping_; })) {
      guard.unlock();
      send_beat();
      const auto now = Clock::now();
      if (hear_beats(previous) || now - looked > longest_silence / 2) heard = now;  // it was this one that slept
      looked = now;
      if (now - heard > longest_silence) end_all(previous);
      guard.lock();
    }
    finish_sending();
  }

  // A beat that the next rank has not taken yet is enough.
  void send_beat() {
    int sent = 1;
    if (beat_ != MPI_REQUEST_NULL) MPI_Test(&beat_, &sent, MPI_STATUS_IGNORE);
    if (sent != 0) MPI_Isend(&signal_, 1, MPI_CHAR, (rank_ + 1) % size_, 0, ranks_, &beat_);
  }

  bool hear_beats(int previous) {
    bool any = false;
    int there = 0;
    while (MPI_Iprobe(previous, 0, ranks_, &there, MPI_STATUS_IGNORE) == MPI_SUCCESS && there != 0) {
      char signal = 0;
      MPI_Recv(&signal, 1, MPI_CHAR, previous, 0, ranks_, MPI_STATUS_IGNORE);
      any = true;
    }
    return any;
  }

  // The next rank may have stopped listening: the request is given up then.
  void finish_sending() {
    if (beat_ == MPI_REQUEST_NULL) return;
    int sent = 0;
    MPI_Test(&beat_, &sent, MPI_STATUS_IGNORE);
    if (sent == 0) MPI_Request_free(&beat_);
  }

  [[noreturn]] void end_all(int silent) const {
    std::fprintf(stderr,
                 "quaver: %s has not answered for %d seconds: all ranks end\n  → look at that machine; "
                 "`quaver train --resume` goes on from the last checkpoint\n",
                 names_[static_cast<std::size_t>(silent)].c_str(), static_cast<int>(longest_silence.count()));
    MPI_Abort(MPI_COMM_WORLD, lost_rank_status);
    std::_Exit(lost_rank_status);
  }

  MPI_Comm ranks_;
  std::vector<std::string> names_;
  int rank_ = 0;
  int size_ = 1;
  char signal_ = 1;
  MPI_Request beat_ = MPI_REQUEST_NULL;
  std::mutex lock_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::thread thread_;
};

class MpiCommunicator final : public Communicator {
 public:
  MpiCommunicator() {
    int given = 0;
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &given), "starting");
    if (given < MPI_THREAD_MULTIPLE) {
      throw Error("this MPI library was built without MPI_THREAD_MULTIPLE",
                  "use one that supports threads, such as Debian's OpenMPI");
    }
    check(MPI_Comm_dup(MPI_COMM_WORLD, &ranks_), "making a communicator");
    check(MPI_Comm_dup(MPI_COMM_WORLD, &beats_), "making a communicator");
    MPI_Comm_set_errhandler(ranks_, MPI_ERRORS_RETURN);
    MPI_Comm_rank(ranks_, &rank_);
    MPI_Comm_size(ranks_, &size_);
    names_ = rank_names(*this);
    heartbeat_ = std::make_unique<Heartbeat>(beats_, names_);
  }

  ~MpiCommunicator() override {
    wait_for_all();  // a rank that ends early takes its heartbeat away
    heartbeat_.reset();
    MPI_Comm_free(&beats_);
    MPI_Comm_free(&ranks_);
    MPI_Finalize();
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name_of(int rank) const override { return names_[static_cast<std::size_t>(rank)]; }

  [[noreturn]] void abort() override {
    MPI_Abort(MPI_COMM_WORLD, lost_rank_status);
    std::_Exit(lost_rank_status);
  }

 private:
  void move(std::span<const Message> sent, std::span<const Message> received) override { transfer(sent, received); }
  void gather(void* all, std::size_t bytes) override { gather_host(all, bytes); }
  void gather_host(void* all, std::size_t bytes) override {
    std::vector<Message> sent;
    std::vector<Message> received;
    const auto part_of = [&](int rank) {
      return static_cast<std::byte*>(all) + static_cast<std::size_t>(rank) * bytes;
    };
    for (int i = 1; i < size_; ++i) {
      const int to = (rank_ + i) % size_;
      const int from = (rank_ + size_ - i) % size_;
      sent.push_back({to, part_of(rank_), bytes});
      received.push_back({from, part_of(from), bytes});
    }
    transfer(sent, received);
  }

  void transfer(std::span<const Message> sent, std::span<const Message> received) {
    std::vector<MPI_Request> requests;
    const auto start = [&](const Message& message, auto begin) {
      for (std::size_t done = 0; done < message.bytes; done += largest_message) {
        const auto bytes = static_cast<int>(std::min(largest_message, message.bytes - done));
        MPI_Request request = MPI_REQUEST_NULL;
        check(begin(static_cast<std::byte*>(message.data) + done, bytes, message.rank, &request), "a message");
        requests.push_back(request);
      }
    };
    for (const Message& message : received) {
      start(message, [&](void* data, int bytes, int rank, MPI_Request* request) {
        return MPI_Irecv(data, bytes, MPI_BYTE, rank, 0, ranks_, request);
      });
    }
    for (const Message& message : sent) {
      start(message, [&](const void* data, int bytes, int rank, MPI_Request* request) {
        return MPI_Isend(data, bytes, MPI_BYTE, rank, 0, ranks_, request);
      });
    }
    wait_until([&] {
      int done = 0;
      check(MPI_Testall(static_cast<int>(requests.size()), requests.data(), &done, MPI_STATUSES_IGNORE), "waiting");
      return done != 0;
    });
  }

  void wait_for_all() {
    const Wait wait(*whereabouts(), &Whereabouts::waits_for_ranks);
    MPI_Request request = MPI_REQUEST_NULL;
    if (MPI_Ibarrier(ranks_, &request) != MPI_SUCCESS) return;
    wait_until([&] {
      int done = 0;
      return MPI_Test(&request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
    });
  }

  MPI_Comm ranks_ = MPI_COMM_NULL;
  MPI_Comm beats_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  std::vector<std::string> names_;
  std::unique_ptr<Heartbeat> heartbeat_;
};

}  // namespace

}  // namespace quaver

extern "C" __attribute__((visibility("default"))) quaver::Communicator* quaver_make_mpi_communicator() {
  return new quaver::MpiCommunicator;
}

extern "C" __attribute__((visibility("default"))) const char* quaver_module_interface() {
  return quaver::module_interface();
}
