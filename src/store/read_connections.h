// The reader's connections: one per concurrent request, kept for the next. Also the lookups that every answer
// begins with.
#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "store/database.h"
#include "store/numerics_table.h"
#include "store/reader.h"

namespace quaver {

class ReadConnections {
 public:
  explicit ReadConnections(std::filesystem::path path);

  const std::filesystem::path& path() const { return path_; }
  struct Lease {
    std::unique_ptr<Database> database;
    std::uint64_t generation = 0;
  };
  Lease take();
  void give_back(Lease lease);
  std::uint64_t data_version();

 private:
  // Which file the connections are to: a store that was moved away and made anew is another one.
  struct Identity {
    std::uint64_t device = 0;
    std::uint64_t inode = 0;
    bool operator==(const Identity&) const = default;
  };
  Identity identity() const;
  std::unique_ptr<Database> open() const;
  void notice_replacement();

  const std::filesystem::path path_;
  std::mutex mutex_;
  Identity identity_;
  std::uint64_t generation_ = 0;                 // of the file, counted up when it was replaced
  std::vector<std::unique_ptr<Database>> idle_;  // of this generation
  std::unique_ptr<Database> watch_;  // data_version counts what others wrote since this connection last looked
};

// A consistent view of the store: a connection and a transaction on it.
class Look {
 public:
  explicit Look(ReadConnections& connections) : connections_(connections), lease_(connections.take()) {
    transaction_.emplace(*lease_.database, Transaction::Mode::read);
  }
  ~Look() {
    transaction_.reset();
    connections_.give_back(std::move(lease_));
  }
  Look(const Look&) = delete;
  Look& operator=(const Look&) = delete;

  Database& database() { return *lease_.database; }
  Statement& prepared(std::string_view sql) { return lease_.database->prepared(sql); }

  std::int64_t run_key(const std::string& id);  // NoSuchRecord where there is none
  SiteLayout layout(std::int64_t run);
  std::vector<StatisticDescription> statistics(std::int64_t run);  // their positions are their numbers

 private:
  ReadConnections& connections_;
  ReadConnections::Lease lease_;
  std::optional<Transaction> transaction_;
};

// What a run's record says of its status: one that says it is running and has not written for a minute is lost.
RunStatus status_from(const std::string& text, double heartbeat);

}  // namespace quaver
