// Ranks that are threads of this process, for tests of what ranks do together.
#pragma once

#include <barrier>
#include <cstring>
#include <exception>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"

namespace quaver::test {

class ThreadRanks {
 public:
  explicit ThreadRanks(int size)
      : size_(size), here_(size), sent_(static_cast<std::size_t>(size)), shared_(sent_.size()) {}

  // Calls work(rank) on a thread each, and throws what one of them threw, when all have ended.
  void run(const std::function<void(Communicator&)>& work) {
    std::vector<std::exception_ptr> failures(static_cast<std::size_t>(size_));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < size_; ++rank) {
      threads.emplace_back([&, rank] {
        Rank own(*this, rank);
        try {
          work(own);
        } catch (...) {
          failures[static_cast<std::size_t>(rank)] = std::current_exception();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::exception_ptr& failure : failures) {
      if (failure != nullptr) std::rethrow_exception(failure);
    }
  }

 private:
  class Rank final : public Communicator {
   public:
    Rank(ThreadRanks& all, int rank) : all_(all), rank_(rank) {}
    int rank() const override { return rank_; }
    int size() const override { return all_.size_; }
    std::string name_of(int rank) const override { return "rank " + std::to_string(rank); }

    [[noreturn]] void abort() override { std::terminate(); }

   private:
    void move(std::span<const Message> sent, std::span<const Message> received) override {
      all_.sent_[static_cast<std::size_t>(rank_)].assign(sent.begin(), sent.end());
      all_.here_.arrive_and_wait();
      std::vector<std::size_t> next(static_cast<std::size_t>(size()));
      for (const Message& message : received) {
        const auto& from = all_.sent_[static_cast<std::size_t>(message.rank)];
        std::size_t& i = next[static_cast<std::size_t>(message.rank)];
        while (i < from.size() && from[i].rank != rank_) ++i;
        if (i == from.size() || from[i].bytes != message.bytes) throw std::logic_error("messages do not match");
        std::memcpy(message.data, from[i++].data, message.bytes);
      }
      all_.here_.arrive_and_wait();
    }
    void gather(void* all, std::size_t bytes) override { gather_host(all, bytes); }
    void gather_host(void* all, std::size_t bytes) override {
      auto* own = static_cast<std::byte*>(all);
      all_.shared_[static_cast<std::size_t>(rank_)] = own;
      all_.here_.arrive_and_wait();
      for (int other = 0; other < size(); ++other) {
        const std::size_t offset = static_cast<std::size_t>(other) * bytes;
        if (other != rank_) std::memcpy(own + offset, all_.shared_[static_cast<std::size_t>(other)] + offset, bytes);
      }
      all_.here_.arrive_and_wait();
    }

    ThreadRanks& all_;
    int rank_;
  };

  int size_;
  std::barrier<> here_;
  std::vector<std::vector<Message>> sent_;
  std::vector<std::byte*> shared_;
};

}  // namespace quaver::test
