#include "store/schema.h"

#include <fmt/format.h>
#include <thread>

namespace quaver {

namespace {

constexpr int application_id = 0x51765201;  // tells the store from other SQLite files

// Every table begins with the run's number, so that one run's rows lie together.
//
// numerics: a row holds one statistic of a chunk of the sites of one role, float32 in little byte order. At level 0 a
// bin is a sample, by number (numerics_steps tells its step); at level k it stands for the 8^k samples from bin · 8^k
// on, with the worst value of each site, and is there once all of them are. A bin without any value is not stored. A
// row holds one bin, or several that follow each other from `bin` on, within a group of eight: see numerics_table.cpp.
// checksum: the CRC-32C of data; NULL in rows that schema 1 wrote.
constexpr const char* tables = R"sql(
CREATE TABLE runs(
  key INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, model TEXT NOT NULL, recipe TEXT NOT NULL,
  "group" TEXT NOT NULL, seed INTEGER NOT NULL, directory TEXT NOT NULL, config_toml TEXT NOT NULL,
  environment_json TEXT NOT NULL, steps INTEGER NOT NULL, tokens_per_step INTEGER NOT NULL, status TEXT NOT NULL,
  started REAL NOT NULL, heartbeat REAL NOT NULL, step INTEGER NOT NULL);
CREATE TABLE config(run INTEGER, position INTEGER, key TEXT NOT NULL, value TEXT NOT NULL,
  PRIMARY KEY(run, position)) WITHOUT ROWID;
CREATE TABLE quantities(run INTEGER, kind TEXT, position INTEGER, name TEXT NOT NULL, value REAL,
  PRIMARY KEY(run, kind, position)) WITHOUT ROWID;
CREATE TABLE tags(run INTEGER, position INTEGER, tag TEXT NOT NULL, PRIMARY KEY(run, position)) WITHOUT ROWID;
CREATE TABLE revisions(run INTEGER, kind TEXT, revision INTEGER NOT NULL, PRIMARY KEY(run, kind)) WITHOUT ROWID;
CREATE TABLE sites(run INTEGER, site INTEGER, name TEXT NOT NULL, layer TEXT NOT NULL, role TEXT NOT NULL,
  PRIMARY KEY(run, site)) WITHOUT ROWID;
CREATE TABLE site_states(run INTEGER, site INTEGER, step INTEGER, rows TEXT NOT NULL, columns TEXT NOT NULL,
  block TEXT NOT NULL, policy TEXT NOT NULL, recipe TEXT NOT NULL, reason TEXT NOT NULL,
  PRIMARY KEY(run, site, step)) WITHOUT ROWID;
CREATE TABLE statistics(run INTEGER, statistic INTEGER, name TEXT NOT NULL, unit TEXT NOT NULL, doc TEXT NOT NULL,
  worse TEXT NOT NULL, PRIMARY KEY(run, statistic)) WITHOUT ROWID;
CREATE TABLE metric_names(name INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE);
CREATE TABLE metrics(run INTEGER, name INTEGER, step INTEGER, value REAL, PRIMARY KEY(run, name, step)) WITHOUT ROWID;
CREATE TABLE numerics_steps(run INTEGER, step INTEGER, sample INTEGER NOT NULL, PRIMARY KEY(run, step)) WITHOUT ROWID;
CREATE TABLE numerics(run INTEGER, level INTEGER, statistic INTEGER, role INTEGER, chunk INTEGER, bin INTEGER,
  data BLOB NOT NULL, checksum INTEGER, PRIMARY KEY(run, level, statistic, role, chunk, bin)) WITHOUT ROWID;
CREATE TABLE histogram_steps(run INTEGER, step INTEGER, ordinal INTEGER NOT NULL,
  PRIMARY KEY(run, step)) WITHOUT ROWID;
CREATE TABLE histograms(run INTEGER, step INTEGER, chunk INTEGER, data BLOB NOT NULL,
  checksum INTEGER, PRIMARY KEY(run, step, chunk)) WITHOUT ROWID;
CREATE TABLE changes(key INTEGER PRIMARY KEY, run INTEGER NOT NULL, step INTEGER NOT NULL, site TEXT NOT NULL,
  reason TEXT NOT NULL, scale_before REAL, scale_after REAL, format_before TEXT NOT NULL, format_after TEXT NOT NULL);
CREATE INDEX changes_by_step ON changes(run, step);
CREATE TABLE alerts(key INTEGER PRIMARY KEY, run INTEGER NOT NULL, step INTEGER NOT NULL, rule TEXT NOT NULL,
  site TEXT, last_step INTEGER NOT NULL, count INTEGER NOT NULL, severity TEXT NOT NULL, value REAL, threshold REAL,
  text TEXT NOT NULL, meaning TEXT NOT NULL, remedy TEXT NOT NULL, act TEXT, recorded REAL NOT NULL);
CREATE INDEX alerts_by_step ON alerts(run, step);
CREATE TABLE events(key INTEGER PRIMARY KEY, run INTEGER NOT NULL, step INTEGER NOT NULL, kind TEXT NOT NULL,
  text TEXT NOT NULL);
CREATE INDEX events_by_step ON events(run, step);
CREATE TABLE samples(run INTEGER, step INTEGER, text TEXT NOT NULL, PRIMARY KEY(run, step)) WITHOUT ROWID;
CREATE TABLE documents(run INTEGER, kind TEXT, json TEXT NOT NULL, PRIMARY KEY(run, kind)) WITHOUT ROWID;
)sql";

// What people add to a run, besides tags. name NULL: the one it was trained under. deleted: when, NULL: it is not.
constexpr const char* annotations_table = R"sql(
CREATE TABLE annotations(run INTEGER PRIMARY KEY, name TEXT, note TEXT NOT NULL, hidden INTEGER NOT NULL, deleted REAL);
)sql";

bool is_empty(Database& database) {
  Statement statement(database, "SELECT count(*) FROM sqlite_schema");
  return statement.step() && statement.column_int(0) == 0;
}

void check_versions(Database& database) {
  const std::int64_t version = database.pragma("user_version");
  if (database.pragma("application_id") != application_id || version < 1) {
    throw StoreFailure(StoreFailure::Kind::lasting, database.path().string() + " is not a store of runs",
                       "it is some other SQLite file: move it away, or name another folder of runs");
  }
  if (version > schema_version) {
    throw StoreFailure(StoreFailure::Kind::lasting,
                       fmt::format("{} was written by a newer version of quaver (schema {}, this one knows {})",
                                   database.path().string(), version, schema_version),
                       "use that version, or move the file away to start a new store");
  }
}

// Two programs may do this at the same moment: whoever comes second finds it done.
void bring_up_to_date(Database& database) {
  if (database.pragma("user_version") == schema_version) return;
  Transaction transaction(database, Transaction::Mode::write);
  if (database.pragma("user_version") == 1) {
    database.execute("ALTER TABLE numerics ADD COLUMN checksum INTEGER");
    database.execute("ALTER TABLE histograms ADD COLUMN checksum INTEGER");
    database.execute("PRAGMA user_version=2");
  }
  if (database.pragma("user_version") == 2) {
    database.execute(annotations_table);
    database.execute("PRAGMA user_version=3");
  }
  transaction.commit();
}

// Two trainers that make the store at the same moment: the switch to WAL needs the file alone and does not wait.
void use_wal(Database& database) {
  for (int tries = 0;; ++tries) {
    try {
      return database.execute("PRAGMA journal_mode=WAL");
    } catch (const StoreFailure& failure) {
      if (failure.kind() != StoreFailure::Kind::passing || tries == 50) throw;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
}

}  // namespace

void prepare_store(Database& database) {
  if (!is_empty(database)) check_versions(database);  // before anything in a file that is not ours is changed
  use_wal(database);
  database.execute(
      "PRAGMA synchronous=FULL");  // what was written stays, also when the power goes: checkpoints rely on it
  database.execute("PRAGMA journal_size_limit=67108864");
  database.execute("PRAGMA wal_autocheckpoint=4096");  // pages grow by a row at a time: let several land before a sync
  database.execute("PRAGMA cache_size=-16384");
  if (is_empty(database)) {
    Transaction transaction(database, Transaction::Mode::write);
    if (is_empty(database)) {
      database.execute(tables);
      database.execute(annotations_table);
      database.execute(fmt::format("PRAGMA application_id={}", application_id));
      database.execute(fmt::format("PRAGMA user_version={}", schema_version));
    }
    transaction.commit();
  }
  check_versions(database);
  bring_up_to_date(database);
}

void check_store(Database& database) { check_versions(database); }

}  // namespace quaver
