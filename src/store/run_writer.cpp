#include "store/run_writer.h"

#include <algorithm>
#include <limits>

#include "store/histograms.h"
#include "store/schema.h"

namespace quaver {

namespace {

const char* const recorded_tables[] = {"numerics_steps", "histogram_steps", "histograms", "changes",
                                       "alerts",         "events",          "samples"};

}  // namespace

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

RunWriter::RunWriter(const std::filesystem::path& store, const RunDescription& description, std::uint64_t last_step,
                     std::chrono::milliseconds busy_timeout)
    : database_(store, Database::Access::write, busy_timeout), id_(description.id) {
  prepare_store(database_);
  Transaction transaction(database_, Transaction::Mode::write);
  enter(description, last_step);
  write_revisions();
  transaction.commit();
}

void RunWriter::enter(const RunDescription& description, std::uint64_t last_step) {
  const bool was_there = find_or_make_row(description, last_step);
  write_lists(description);
  enter_statistics(description);
  if (was_there && !sites_are(description)) {
    note_ = "the run's sites are not those of its earlier record: numerics recorded before are removed";
    database_.prepared("DELETE FROM numerics WHERE run=?").bind(run_).run();
    for (const char* table : {"numerics_steps", "histogram_steps", "histograms", "sites", "site_states"}) {
      Statement(database_, std::string("DELETE FROM ") + table + " WHERE run=?").bind(run_).run();
    }
  }
  std::vector<std::string> roles;
  for (const SiteDescription& site : description.sites) {
    sites_.emplace(site.name, roles.size());
    roles.push_back(site.role);
  }
  layout_ = SiteLayout::of(roles);
  if (was_there) remove_after(last_step);
  enter_sites(description, last_step);
  touch("status");
  touch("sites");
}

// True: the run has a record that this one continues.
bool RunWriter::find_or_make_row(const RunDescription& description, std::uint64_t last_step) {
  Statement& known = database_.prepared("SELECT key FROM runs WHERE id=?").bind(description.id);
  const bool was_there = known.step();
  const double now = seconds_now();
  if (was_there) {
    run_ = known.column_int(0);
    if (last_step == 0) {  // it starts over: its documents speak of another training, and so do notices before step 1
      for (const char* table : {"documents", "events", "changes"}) {
        Statement(database_, std::string("DELETE FROM ") + table + " WHERE run=?").bind(run_).run();
      }
      database_.prepared("UPDATE runs SET started=? WHERE key=?").bind(now, run_).run();
    }
  } else {
    database_.prepared("INSERT INTO runs VALUES(NULL,?,'','','','',0,'','','',0,0,'running',?,?,0)")
        .bind(description.id, now, now)
        .run();
    run_ = database_.last_insert_id();
  }
  database_
      .prepared(
          "UPDATE runs SET name=?, model=?, recipe=?, \"group\"=?, seed=?, directory=?, config_toml=?, "
          "environment_json=?, steps=?, tokens_per_step=?, status='running', heartbeat=? WHERE key=?")
      .bind(description.name, description.model, description.recipe, description.group, description.seed,
            description.directory, description.config_toml, description.environment_json, description.steps,
            description.tokens_per_step, now, run_)
      .run();
  // A deleted run that trains again is wanted again.
  database_.prepared("UPDATE annotations SET deleted=NULL WHERE run=?").bind(run_).run();
  return was_there;
}

void RunWriter::write_lists(const RunDescription& description) {
  database_.prepared("DELETE FROM config WHERE run=?").bind(run_).run();
  database_.prepared("DELETE FROM quantities WHERE run=?").bind(run_).run();
  for (std::size_t i = 0; i < description.config.size(); ++i) {
    const auto& [key, value] = description.config[i];
    database_.prepared("INSERT INTO config VALUES(?,?,?,?)").bind(run_, i, key, value).run();
  }
  const auto quantity = [&](const char* kind, std::size_t position, const std::string& name, double value) {
    database_.prepared("INSERT INTO quantities VALUES(?,?,?,?,?)").bind(run_, kind, position, name, value).run();
  };
  for (std::size_t i = 0; i < description.memory.size(); ++i) {
    quantity("memory", i, description.memory[i].first, static_cast<double>(description.memory[i].second));
  }
  for (std::size_t i = 0; i < description.shares.size(); ++i) {
    quantity("share", i, description.shares[i].first, description.shares[i].second);
  }
  quantity("unit", 0, description.unit, static_cast<double>(description.tokens_per_step));
}

// A statistic keeps the number it had; one that an earlier version of the program did not have gets a new one.
void RunWriter::enter_statistics(const RunDescription& description) {
  std::vector<std::string> known;
  Statement& rows = database_.prepared("SELECT name FROM statistics WHERE run=? ORDER BY statistic").bind(run_);
  while (rows.step()) known.push_back(rows.column_text(0));
  for (const StatisticDescription& statistic : description.statistics) {
    const auto found = std::find(known.begin(), known.end(), statistic.name);
    const std::int64_t id = found - known.begin();
    if (found == known.end()) known.push_back(statistic.name);
    statistics_.push_back({id, statistic.worse});
    database_.prepared("INSERT OR REPLACE INTO statistics VALUES(?,?,?,?,?,?)")
        .bind(run_, id, statistic.name, statistic.unit, statistic.doc, name_of(statistic.worse))
        .run();
  }
}

bool RunWriter::sites_are(const RunDescription& description) {
  Statement& rows = database_.prepared("SELECT name, role FROM sites WHERE run=? ORDER BY site").bind(run_);
  std::size_t site = 0;
  for (; rows.step(); ++site) {
    if (site >= description.sites.size()) return false;
    if (rows.column_text(0) != description.sites[site].name) return false;
    if (rows.column_text(1) != description.sites[site].role) return false;
  }
  return site == description.sites.size();
}

void RunWriter::enter_sites(const RunDescription& description, std::uint64_t last_step) {
  for (std::size_t i = 0; i < description.sites.size(); ++i) {
    const SiteDescription& site = description.sites[i];
    database_.prepared("INSERT OR REPLACE INTO sites VALUES(?,?,?,?,?)")
        .bind(run_, i, site.name, site.layer, site.role)
        .run();
    put(SiteStateRecord{last_step, site.name, site.state});
  }
}

void RunWriter::write(std::span<const Record> batch) {
  touched_.clear();
  step_ = 0;
  newest_histogram_ = nullptr;
  for (const Record& record : batch) {
    const auto* numerics = std::get_if<NumericsRecord>(&record);
    if (numerics != nullptr && !numerics->binades.empty()) newest_histogram_ = numerics;
  }
  Transaction transaction(database_, Transaction::Mode::write);
  check_still_there();
  if (newest_histogram_ != nullptr) next_histogram_ = HistogramTable(database_, run_).next();
  for (const Record& record : batch) {
    std::visit([this](const auto& value) { put(value); }, record);
  }
  database_.prepared("UPDATE runs SET heartbeat=?, step=max(step,?) WHERE key=?")
      .bind(seconds_now(), step_, run_)
      .run();
  write_revisions();
  transaction.commit();
}

// A process that was suspended counts as lost, and a lost run may be removed. Its number may then be another run's.
void RunWriter::check_still_there() {
  Statement& row = database_.prepared("SELECT 1 FROM runs WHERE key=? AND id=?").bind(run_, id_);
  if (row.step()) return;
  throw StoreFailure(StoreFailure::Kind::lasting,
                     database_.path().string() + ": the run was removed from the store while it was suspended",
                     "its own folder keeps its log; resumed, the run is recorded anew from there on");
}

void RunWriter::write_revisions() {
  for (const std::string& kind : touched_) {
    database_.prepared("INSERT INTO revisions VALUES(?,?,1) ON CONFLICT(run,kind) DO UPDATE SET revision=revision+1")
        .bind(run_, kind)
        .run();
  }
}

std::int64_t RunWriter::metric_name(const std::string& name) {
  // Asked of the table each time: what a rolled back transaction added is not there any more.
  Statement& known = database_.prepared("SELECT name FROM metric_names WHERE text=?").bind(name);
  if (known.step()) return known.column_int(0);
  database_.prepared("INSERT INTO metric_names VALUES(NULL,?)").bind(name).run();
  return database_.last_insert_id();
}

void RunWriter::put(const MetricsRecord& record) {
  for (const auto& [name, value] : record.values) {
    database_.prepared("INSERT OR REPLACE INTO metrics VALUES(?,?,?,?)")
        .bind(run_, metric_name(name), record.step, value)
        .run();
  }
  step_ = std::max(step_, record.step);
  touch("metrics");
}

void RunWriter::put(const NumericsRecord& record) {
  if (!table().append(record.step, record.values, statistics_)) return;
  if (!record.binades.empty()) put_histogram(record);
  touch("numerics");
}

void RunWriter::put_histogram(const NumericsRecord& record) {
  const std::uint64_t ordinal = next_histogram_++;
  if (&record != newest_histogram_ && !HistogramTable::worth_writing(ordinal)) return;
  HistogramTable(database_, run_).append(record.step, ordinal, record.binades);
}

void RunWriter::put(const ScaleChangeRecord& record) {
  database_.prepared("INSERT INTO changes VALUES(NULL,?,?,?,?,?,?,?,?)")
      .bind(run_, record.step, record.site, record.reason, record.scale_before, record.scale_after,
            record.format_before, record.format_after)
      .run();
  touch("changes");
}

void RunWriter::put(const SiteStateRecord& record) {
  const auto found = sites_.find(record.site);
  if (found == sites_.end()) return;
  const std::size_t site = found->second;
  const SiteState& state = record.state;
  Statement& present =
      database_
          .prepared(
              "SELECT rows, columns, block, policy, recipe, reason FROM site_states WHERE run=? AND site=? "
              "ORDER BY step DESC LIMIT 1")
          .bind(run_, site);
  if (present.step() && state == SiteState{present.column_text(0), present.column_text(1), present.column_text(2),
                                           present.column_text(3), present.column_text(4), present.column_text(5)}) {
    return;
  }
  database_.prepared("INSERT OR REPLACE INTO site_states VALUES(?,?,?,?,?,?,?,?,?)")
      .bind(run_, site, record.step, state.rows, state.columns, state.block, state.policy, state.recipe, state.reason)
      .run();
  touch("sites");
}

void RunWriter::put(const AlertRecord& record) {
  Statement& known = database_.prepared("SELECT key FROM alerts WHERE run=? AND step=? AND rule=? AND site IS ?")
                         .bind(run_, record.step, record.rule, record.site);
  if (known.step()) {
    const std::int64_t key = known.column_int(0);
    database_
        .prepared(
            "UPDATE alerts SET last_step=?, count=?, severity=?, value=?, threshold=?, text=?, meaning=?, "
            "remedy=?, act=? WHERE key=?")
        .bind(record.last_step, record.count, record.severity, record.value, record.threshold, record.text,
              record.meaning, record.remedy, record.act, key)
        .run();
  } else {
    database_.prepared("INSERT INTO alerts VALUES(NULL,?,?,?,?,?,?,?,?,?,?,?,?,?,?)")
        .bind(run_, record.step, record.rule, record.site, record.last_step, record.count, record.severity,
              record.value, record.threshold, record.text, record.meaning, record.remedy, record.act, seconds_now())
        .run();
  }
  touch("alerts");
}

void RunWriter::put(const EventRecord& record) {
  database_.prepared("INSERT INTO events VALUES(NULL,?,?,?,?)").bind(run_, record.step, record.kind, record.text).run();
  touch("events");
}

void RunWriter::put(const SampleRecord& record) {
  database_.prepared("INSERT OR REPLACE INTO samples VALUES(?,?,?)").bind(run_, record.step, record.text).run();
  touch("samples");
}

void RunWriter::put(const DocumentRecord& record) {
  database_.prepared("INSERT OR REPLACE INTO documents VALUES(?,?,?)").bind(run_, record.kind, record.json).run();
  touch("documents");
}

void RunWriter::put(RunStatus status) {
  database_.prepared("UPDATE runs SET status=? WHERE key=?").bind(name_of(status), run_).run();
  touch("status");
}

void RunWriter::put(const RewindRecord& record) { remove_after(record.last_step); }

void RunWriter::remove_after(std::uint64_t last_step) {
  std::vector<StoredStatistic> all;  // also those that this version of the program does not record
  Statement& stored = database_.prepared("SELECT statistic FROM statistics WHERE run=?").bind(run_);
  while (stored.step()) all.push_back({.id = stored.column_int(0)});
  table().remove_after(last_step, all);
  Statement names(database_, "SELECT name FROM metric_names");
  while (names.step()) {
    database_.prepared("DELETE FROM metrics WHERE run=? AND name=? AND step>?")
        .bind(run_, names.column_int(0), last_step)
        .run();
  }
  for (const char* recorded : recorded_tables) {
    Statement(database_, std::string("DELETE FROM ") + recorded + " WHERE run=? AND step>?")
        .bind(run_, last_step)
        .run();
  }
  Statement(database_, "DELETE FROM site_states WHERE run=? AND step>?").bind(run_, last_step).run();
  database_.prepared("UPDATE alerts SET last_step=? WHERE run=? AND last_step>?")
      .bind(last_step, run_, last_step)
      .run();
  database_.prepared("UPDATE runs SET step=min(step,?) WHERE key=?").bind(last_step, run_).run();
  step_ = std::min(step_, last_step);
  for (const char* kind : {"metrics", "numerics", "changes", "alerts", "events", "samples", "sites"}) touch(kind);
}

}  // namespace quaver
