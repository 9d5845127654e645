#include "store/recorder.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <fmt/format.h>
#include <mutex>
#include <optional>
#include <thread>

#include "quaver/error.h"
#include "store/run_writer.h"
#include "store/schema.h"

namespace quaver {

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t most_spare_buffers = 4;

// What a record weighs in the queue, roughly.
struct Weigh {
  std::size_t operator()(const MetricsRecord& record) const { return 64 + 64 * record.values.size(); }
  std::size_t operator()(const NumericsRecord& record) const {
    return record.values.size() * sizeof(float) + record.binades.size() * sizeof(BinadeCounts);
  }
  std::size_t operator()(const ScaleChangeRecord& record) const { return 256 + record.reason.size(); }
  std::size_t operator()(const SiteStateRecord& record) const { return 256 + record.state.reason.size(); }
  std::size_t operator()(const AlertRecord& record) const {
    return 512 + record.text.size() + record.meaning.size() + record.remedy.size();
  }
  std::size_t operator()(const EventRecord& record) const { return 128 + record.text.size(); }
  std::size_t operator()(const SampleRecord& record) const { return 64 + record.text.size(); }
  std::size_t operator()(const DocumentRecord& record) const { return 64 + record.json.size(); }
  std::size_t operator()(const RunStatus&) const { return 8; }
  std::size_t operator()(const RewindRecord&) const { return 8; }
};

std::size_t weight_of(const Record& record) { return std::visit(Weigh{}, record); }
bool is_numerics(const Record& record) { return std::holds_alternative<NumericsRecord>(record); }

// Without these the record would not be whole, and they are small.
bool must_stay(const Record& record) {
  return std::holds_alternative<RunStatus>(record) || std::holds_alternative<RewindRecord>(record);
}

std::string with_remedy(const Error& error) {
  return error.remedy().empty() ? std::string(error.what()) : fmt::format("{}; {}", error.what(), error.remedy());
}

std::uint64_t storable(std::uint64_t step) { return std::min<std::uint64_t>(step, INT64_MAX); }

}  // namespace

// The queue and the thread that empties it. Everything but writer_ is guarded by the mutex.
class RunRecorder::Queue {
 public:
  Queue(std::unique_ptr<RunWriter> writer, const RecorderLimits& limits)
      : limits_(limits), writer_(std::move(writer)), thread_([this] { work(); }) {}

  ~Queue() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

  void push(Record record) {
    const std::lock_guard lock(mutex_);
    if (failed_) return;
    const std::size_t weight = weight_of(record);
    if (!has_room(record, weight)) {
      ++dropped_;
      return;
    }
    (is_numerics(record) ? numerics_bytes_ : other_bytes_) += weight;
    if (const auto* status = std::get_if<RunStatus>(&record)) running_ = *status == RunStatus::running;
    waiting_.push_back(std::move(record));
    ++pushed_;
  }

  // A buffer that was written and is free again: fresh memory costs more than the copy into it.
  std::vector<float> buffer() {
    const std::lock_guard lock(mutex_);
    if (spare_.empty()) return {};
    std::vector<float> last = std::move(spare_.back());
    spare_.pop_back();
    return last;
  }

  bool flush(std::chrono::milliseconds timeout) {
    std::unique_lock lock(mutex_);
    const std::uint64_t goal = pushed_;
    hurry_ = true;
    wake_.notify_all();
    const std::uint64_t failures = failures_;
    written_wake_.wait_for(lock, timeout, [&] { return failed_ || written_ >= goal || failures_ != failures; });
    return written_ >= goal;
  }

  bool failed() const {
    const std::lock_guard lock(mutex_);
    return failed_;
  }

  std::uint64_t dropped() const {
    const std::lock_guard lock(mutex_);
    return dropped_;
  }

  // What the user has to be told and was not yet.
  std::vector<std::string> take_messages() {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> messages;
    if (!trouble_.empty() && !trouble_told_) {
      trouble_told_ = true;
      messages.push_back(trouble_);
    }
    if (dropped_ > 0 && !drop_told_) {
      drop_told_ = true;
      messages.emplace_back(
          trouble_.empty() ? "the store is written more slowly than the run records: some samples of numerics are left "
                             "out of it; record them less often (train.statistics_every)"
                           : "the store could not be written for so long that records are left out of it");
    }
    return messages;
  }

 private:
  bool has_room(const Record& record, std::size_t weight) const {
    if (must_stay(record)) return true;
    if (is_numerics(record)) return numerics_bytes_ == 0 || numerics_bytes_ + weight <= limits_.numerics_bytes;
    return other_bytes_ + weight <= limits_.other_bytes;
  }

  void work() {
    std::unique_lock lock(mutex_);
    std::chrono::milliseconds pause = limits_.transaction_every;
    Clock::time_point last_sign = Clock::now();
    while (true) {
      wake_.wait_for(lock, pause, [&] { return stopping_ || hurry_; });
      hurry_ = false;
      const bool last_try = stopping_;
      const std::uint64_t goal = pushed_;
      std::move(waiting_.begin(), waiting_.end(), std::back_inserter(batch_));
      waiting_.clear();
      const bool sign_of_life = running_ && Clock::now() - last_sign >= limits_.heartbeat_every;
      if (!batch_.empty() || (sign_of_life && !last_try)) {
        lock.unlock();
        const std::optional<StoreFailure> failure = try_to_write();
        lock.lock();
        if (!failure) {
          last_sign = Clock::now();
          pause = limits_.transaction_every;
          forget_batch(lock);
        } else if (failure->kind() == StoreFailure::Kind::lasting) {
          return give_up(*failure);
        } else {
          if (trouble_.empty()) {
            trouble_ =
                fmt::format("the run is not being recorded at present: {}. Training goes on", with_remedy(*failure));
          }
          pause = std::min(2 * pause, limits_.longest_retry);
          ++failures_;
          written_wake_.notify_all();
        }
      }
      if (batch_.empty()) {
        written_ = goal;
        written_wake_.notify_all();
      }
      if (last_try) return;
    }
  }

  std::optional<StoreFailure> try_to_write() {
    try {
      writer_->write(batch_);
      return std::nullopt;
    } catch (const StoreFailure& failure) {
      return failure;
    } catch (const std::exception& error) {  // out of memory, say
      return StoreFailure(StoreFailure::Kind::passing, error.what(), "");
    }
  }

  void forget_batch(std::unique_lock<std::mutex>& lock) {
    for (Record& record : batch_) {
      (is_numerics(record) ? numerics_bytes_ : other_bytes_) -= weight_of(record);
      auto* numerics = std::get_if<NumericsRecord>(&record);
      if (numerics != nullptr && spare_.size() < most_spare_buffers) spare_.push_back(std::move(numerics->values));
    }
    lock.unlock();  // giving back megabytes takes a while, and nobody else touches the batch
    batch_.clear();
    lock.lock();
  }

  void give_up(const StoreFailure& failure) {
    trouble_ = fmt::format("the run is not recorded any more: {}. Training goes on", with_remedy(failure));
    failed_ = true;
    waiting_.clear();
    batch_.clear();
    spare_.clear();
    written_wake_.notify_all();
  }

  const RecorderLimits limits_;
  std::unique_ptr<RunWriter> writer_;  // the thread's
  std::vector<Record> batch_;          // the thread's while it writes

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable written_wake_;
  std::deque<Record> waiting_;
  std::vector<std::vector<float>> spare_;
  std::size_t numerics_bytes_ = 0;
  std::size_t other_bytes_ = 0;
  std::uint64_t pushed_ = 0;
  std::uint64_t written_ = 0;
  std::uint64_t failures_ = 0;
  std::uint64_t dropped_ = 0;
  std::string trouble_;
  bool trouble_told_ = false;
  bool drop_told_ = false;
  bool running_ = true;
  bool hurry_ = false;
  bool stopping_ = false;
  bool failed_ = false;
  std::thread thread_;  // last: it uses all of the above
};

RunRecorder::RunRecorder(const std::filesystem::path& store, const RunDescription& description, std::uint64_t last_step,
                         Warning warning, RecorderLimits limits)
    : warning_(std::move(warning)), sites_(description.sites.size()), statistics_(description.statistics.size()) {
  try {
    auto writer = std::make_unique<RunWriter>(store, description, storable(last_step), limits.busy_timeout);
    if (!writer->note().empty() && warning_) warning_(writer->note());
    queue_ = std::make_unique<Queue>(std::move(writer), limits);
  } catch (const Error& error) {
    if (warning_) warning_(fmt::format("the run is not recorded in the store: {}", with_remedy(error)));
  } catch (const std::exception& error) {
    if (warning_) warning_(fmt::format("the run is not recorded in the store {}: {}", store.string(), error.what()));
  }
}

RunRecorder::~RunRecorder() {
  if (!queue_) return;
  try {
    if (dropped() > 0) event(step_, "store", fmt::format("{} records were left out of the store", dropped()));
    flush(std::chrono::seconds(10));
  } catch (...) {  // whoever listens is gone, and a destructor has nobody to tell
  }
}

bool RunRecorder::recording() const { return queue_ != nullptr && !queue_->failed(); }

std::uint64_t RunRecorder::dropped() const { return queue_ ? queue_->dropped() : 0; }

void RunRecorder::raise_warnings() {
  for (const std::string& message : queue_->take_messages()) {
    if (warning_) warning_(message);
  }
}

template <typename Kind>
void RunRecorder::enqueue(Kind record) {
  if (!queue_) return;
  queue_->push(Record(std::move(record)));
  raise_warnings();
}

void RunRecorder::metrics(std::uint64_t step, std::span<const MetricValue> values) {
  if (!queue_) return;
  MetricsRecord record{storable(step), {}};
  record.values.reserve(values.size());
  for (const MetricValue& metric : values) record.values.emplace_back(metric.name, metric.value);
  step_ = std::max(step_, record.step);
  enqueue(std::move(record));
}

void RunRecorder::numerics(std::uint64_t step, std::span<const float> values, std::vector<BinadeCounts> binades) {
  if (!queue_) return;
  if (values.size() != sites_ * statistics_ || (!binades.empty() && binades.size() != sites_)) {
    throw Error(fmt::format("a sample of numerics has {} values and {} histograms, the run {} sites of {} statistics",
                            values.size(), binades.size(), sites_, statistics_),
                "record what the run's description says");
  }
  NumericsRecord record{storable(step), queue_->buffer(), std::move(binades)};
  record.values.assign(values.begin(), values.end());
  enqueue(std::move(record));
}

void RunRecorder::scale_change(ScaleChangeRecord change) { enqueue(std::move(change)); }

void RunRecorder::site_state(std::uint64_t step, std::string_view site, SiteState state) {
  enqueue(SiteStateRecord{storable(step), std::string(site), std::move(state)});
}

void RunRecorder::alert(AlertRecord alert) { enqueue(std::move(alert)); }

void RunRecorder::event(std::uint64_t step, std::string kind, std::string text) {
  enqueue(EventRecord{storable(step), std::move(kind), std::move(text)});
}

void RunRecorder::sample(std::uint64_t step, std::string text) {
  enqueue(SampleRecord{storable(step), std::move(text)});
}

void RunRecorder::document(std::string kind, std::string json) {
  enqueue(DocumentRecord{std::move(kind), std::move(json)});
}

void RunRecorder::status(RunStatus status) { enqueue(status); }

void RunRecorder::rewind(std::uint64_t last_step) {
  step_ = std::min(step_, last_step);
  enqueue(RewindRecord{storable(last_step)});
}

bool RunRecorder::flush(std::chrono::milliseconds timeout) {
  if (!queue_) return false;
  const bool written = queue_->flush(timeout);
  raise_warnings();
  return written;
}

void store_document(const std::filesystem::path& store, const std::string& run, const std::string& kind,
                    const std::string& json) {
  if (!std::filesystem::exists(store)) {
    throw Error(store.string() + ": there is no store of runs", "train a run in this folder first");
  }
  Database database(store, Database::Access::existing, std::chrono::seconds(5));
  prepare_store(database);
  Transaction transaction(database, Transaction::Mode::write);
  Statement& known = database.prepared("SELECT key FROM runs WHERE id=?").bind(run);
  if (!known.step()) throw Error(fmt::format("{} has no run {}", store.string(), run), "train it first");
  const std::int64_t key = known.column_int(0);
  database.prepared("INSERT OR REPLACE INTO documents VALUES(?,?,?)").bind(key, kind, json).run();
  database
      .prepared("INSERT INTO revisions VALUES(?,'documents',1) ON CONFLICT(run,kind) DO UPDATE SET revision=revision+1")
      .bind(key)
      .run();
  transaction.commit();
}

}  // namespace quaver
