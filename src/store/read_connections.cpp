#include "store/read_connections.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "store/run_writer.h"
#include "store/schema.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

constexpr std::chrono::seconds patience{5};
constexpr std::size_t most_idle = 8;
constexpr double lost_after_seconds = 60;

bool has_log(const fs::path& path) {
  std::error_code failure;
  const auto size = fs::file_size(path.string() + "-wal", failure);
  return !failure && size > 0;
}

bool can_write_folder(const fs::path& path) {
  const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  return access(folder.c_str(), W_OK) == 0;
}

WorseWay worse_from(const std::string& text) {
  if (text == name_of(WorseWay::lower)) return WorseWay::lower;
  if (text == name_of(WorseWay::larger_magnitude)) return WorseWay::larger_magnitude;
  return WorseWay::higher;
}

}  // namespace

ReadConnections::ReadConnections(fs::path path) : path_(std::move(path)) {
  watch_ = open();
  identity_ = identity();
}

ReadConnections::Identity ReadConnections::identity() const {
  struct stat status {};
  if (stat(path_.c_str(), &status) != 0) return {};
  return {status.st_dev, status.st_ino};
}

std::unique_ptr<Database> ReadConnections::open() const {
  if (!fs::exists(path_)) {
    throw Error(path_.string() + ": there is no store of runs",
                "name the folder that holds the runs; `quaver train` makes the store with the first of them");
  }
  const auto with = [&](Database::Access access) {
    auto database = std::make_unique<Database>(path_, access, patience);
    check_store(*database);
    return database;
  };
  try {
    return with(Database::Access::read);
  } catch (const StoreFailure&) {
    // SQLite coordinates through files beside the store, which a read-only folder does not let it make. Nobody writes
    // there either, so where no log is left over the file may be read as it is.
    if (can_write_folder(path_) || has_log(path_)) throw;
    return with(Database::Access::immutable);
  }
}

void ReadConnections::notice_replacement() {
  const Identity now = identity();
  if (now == identity_) return;
  identity_ = now;
  ++generation_;
  idle_.clear();
  watch_.reset();
}

ReadConnections::Lease ReadConnections::take() {
  const std::lock_guard lock(mutex_);
  notice_replacement();
  if (idle_.empty()) return {open(), generation_};
  Lease lease{std::move(idle_.back()), generation_};
  idle_.pop_back();
  return lease;
}

void ReadConnections::give_back(Lease lease) {
  const std::lock_guard lock(mutex_);
  if (lease.generation == generation_ && idle_.size() < most_idle) idle_.push_back(std::move(lease.database));
}

std::uint64_t ReadConnections::data_version() {
  const std::lock_guard lock(mutex_);
  notice_replacement();
  if (!watch_) watch_ = open();
  return (generation_ << 32U) + static_cast<std::uint32_t>(watch_->pragma("data_version"));
}

RunStatus status_from(const std::string& text, double heartbeat) {
  for (const RunStatus status : {RunStatus::finished, RunStatus::interrupted, RunStatus::failed}) {
    if (text == name_of(status)) return status;
  }
  return seconds_now() - heartbeat > lost_after_seconds ? RunStatus::lost : RunStatus::running;
}

std::int64_t Look::run_key(const std::string& id) {
  Statement& known = prepared("SELECT key FROM runs WHERE id=?").bind(id);
  if (!known.step()) {
    throw NoSuchRecord(fmt::format("{} has no run {}", connections_.path().filename().string(), id),
                       "choose one of the runs it lists");
  }
  return known.column_int(0);
}

SiteLayout Look::layout(std::int64_t run) {
  std::vector<std::string> roles;
  Statement& rows = prepared("SELECT role FROM sites WHERE run=? ORDER BY site").bind(run);
  while (rows.step()) roles.push_back(rows.column_text(0));
  return SiteLayout::of(roles);
}

std::vector<StatisticDescription> Look::statistics(std::int64_t run) {
  std::vector<StatisticDescription> statistics;
  Statement& rows = prepared("SELECT name, unit, doc, worse FROM statistics WHERE run=? ORDER BY statistic").bind(run);
  while (rows.step()) {
    statistics.push_back(
        {rows.column_text(0), rows.column_text(1), rows.column_text(2), worse_from(rows.column_text(3))});
  }
  return statistics;
}

}  // namespace quaver
