// Ranks on GPUs over NCCL. Collectives of device memory go on the stream of the engine that is attached, behind its
// operations; what hosts say to each other goes over MPI where mpirun started them, else through device memory too.
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "comm/agreement.h"
#include "engine/cuda/comm/nccl_library.h"
#include "engine/cuda/comm/stream_stopwatch.h"
#include "engine/cuda/runtime/gpu.h"
#include "engine/cuda/runtime/stream_device.h"
#include "engine/cuda_module.h"

namespace quaver::cuda {

namespace {

class NcclCommunicator final : public Communicator {
 public:
  explicit NcclCommunicator(const NcclOptions& options)
      : Communicator(options.hosts != nullptr ? options.hosts->whereabouts() : std::make_shared<Whereabouts>()),
        rank_(options.launch.rank),
        size_(options.launch.size),
        hosts_(options.hosts) {
    if (std::getenv("QUAVER_SHARE_GPU") != nullptr) {  // NCCL refuses a GPU twice on what it takes for one machine
      ::setenv("NCCL_HOSTID", ("rank-" + std::to_string(rank_)).c_str(), 1);
    }
    check(cudaSetDevice(options.device), "choosing the GPU");
    check(cudaStreamCreateWithFlags(&own_stream_, cudaStreamNonBlocking), "making a stream");
    nccl_.check(nccl_.init_rank(&ranks_, size_, id_of(options), rank_), "connecting the ranks");
    names_ = rank_names(*this);
    clock_ = std::make_unique<StreamStopwatch>(whereabouts());
  }

  ~NcclCommunicator() override {
    nccl_.destroy(ranks_);
    cudaFree(scratch_);
    cudaStreamDestroy(own_stream_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name_of(int rank) const override { return names_[static_cast<std::size_t>(rank)]; }

  void attach(Device& device) override {
    device_ = dynamic_cast<StreamDevice*>(&device);
    if (device_ != nullptr) device_->tell(whereabouts());
  }

  void read_seconds(const UseSeconds& use) override {
    if (device_ == nullptr) return use(0);
    device_->read(clock_->nanoseconds(), sizeof(std::uint64_t), [use](const std::byte* bytes) {
      std::uint64_t nanoseconds = 0;
      std::memcpy(&nanoseconds, bytes, sizeof(nanoseconds));
      use(1e-9 * static_cast<double>(nanoseconds));
    });
  }

  [[noreturn]] void abort() override {
    if (hosts_ != nullptr) hosts_->abort();
    std::_Exit(lost_rank_status);
  }

 private:
  void move(std::span<const Message> sent, std::span<const Message> received) override {
    const cudaStream_t stream = device_stream();
    clock_->start(stream);
    nccl_.check(nccl_.group_start(), "an exchange");
    for (const Message& message : sent) {
      nccl_.check(nccl_.send(message.data, message.bytes, NcclLibrary::bytes_type, message.rank, ranks_, stream),
                  "sending");
    }
    for (const Message& message : received) {
      nccl_.check(nccl_.receive(message.data, message.bytes, NcclLibrary::bytes_type, message.rank, ranks_, stream),
                  "receiving");
    }
    nccl_.check(nccl_.group_end(), "an exchange");
    clock_->stop(stream);
  }

  void gather(void* all, std::size_t bytes) override {
    const cudaStream_t stream = device_stream();
    clock_->start(stream);
    gather(all, bytes, stream);
    clock_->stop(stream);
  }

  void gather_host(void* all, std::size_t bytes) override {
    if (hosts_ != nullptr) return hosts_->all_gather_host(all, bytes);
    const auto ranks = static_cast<std::size_t>(size_);
    const auto rank = static_cast<std::size_t>(rank_);
    const std::size_t apart = (bytes + 15) / 16 * 16;  // NCCL reads whole words, beyond the last byte
    reserve(apart * ranks);
    check(cudaMemcpyAsync(scratch_ + apart * rank, static_cast<std::byte*>(all) + bytes * rank, bytes,
                          cudaMemcpyHostToDevice, own_stream_),
          "copying to the GPU");
    gather(scratch_, apart, own_stream_);
    check(cudaMemcpy2DAsync(all, bytes, scratch_, apart, bytes, ranks, cudaMemcpyDeviceToHost, own_stream_),
          "copying from the GPU");
    check(cudaStreamSynchronize(own_stream_), "waiting for the other ranks");
  }

  // Over MPI the first rank's goes to all; else all of them derive it from the address where the first one listens.
  NcclId id_of(const NcclOptions& options) const {
    NcclId id{};
    if (hosts_ == nullptr) {
      const std::string address = options.launch.master_address + ":" + std::to_string(options.launch.master_port);
      ::setenv("NCCL_COMM_ID", address.c_str(), 1);
      nccl_.check(nccl_.get_unique_id(&id), ("the address " + address).c_str());
      return id;
    }
    std::vector<NcclId> ids(static_cast<std::size_t>(size_));
    if (rank_ == 0) nccl_.check(nccl_.get_unique_id(ids.data()), "starting");
    hosts_->all_gather_host(ids.data(), sizeof(NcclId));
    return ids[0];
  }

  // Where the attached device enqueues at the moment.
  cudaStream_t device_stream() const { return device_ != nullptr ? device_->stream() : own_stream_; }

  void gather(void* all, std::size_t bytes, cudaStream_t stream) {
    const auto* mine = static_cast<const std::byte*>(all) + bytes * static_cast<std::size_t>(rank_);
    nccl_.check(nccl_.all_gather(mine, all, bytes, NcclLibrary::bytes_type, ranks_, stream), "gathering");
  }

  void reserve(std::size_t bytes) {
    if (bytes <= scratch_bytes_) return;
    check(cudaFree(scratch_), "freeing memory for messages");
    check(cudaMalloc(reinterpret_cast<void**>(&scratch_), bytes), "allocating memory for messages");
    scratch_bytes_ = bytes;
  }

  NcclLibrary nccl_;
  int rank_;
  int size_;
  Communicator* hosts_;  // null: none
  NcclComm ranks_ = nullptr;
  cudaStream_t own_stream_ = nullptr;
  StreamDevice* device_ = nullptr;
  std::unique_ptr<StreamStopwatch> clock_;  // of collectives
  std::byte* scratch_ = nullptr;
  std::size_t scratch_bytes_ = 0;
  std::vector<std::string> names_;
};

}  // namespace

}  // namespace quaver::cuda

extern "C" __attribute__((visibility("default"))) quaver::Communicator* quaver_make_nccl_communicator(
    const quaver::NcclOptions* options) {
  return new quaver::cuda::NcclCommunicator(*options);
}
