#include "store/run_edits.h"

#include <algorithm>
#include <fmt/format.h>

#include "store/database.h"
#include "store/read_connections.h"
#include "store/run_writer.h"
#include "store/schema.h"

namespace quaver {

namespace {

constexpr std::chrono::seconds edit_patience{5};
constexpr int rows_per_transaction = 1000;

// Tables that grow with a run, and what tells their rows apart.
struct GrowingTable {
  const char* name;
  const char* key;
};
constexpr GrowingTable growing_tables[] = {{"numerics", "run, level, statistic, role, chunk, bin"},
                                           {"histograms", "run, step, chunk"},
                                           {"metrics", "run, name, step"},
                                           {"numerics_steps", "run, step"},
                                           {"changes", "key"},
                                           {"alerts", "key"},
                                           {"events", "key"},
                                           {"samples", "run, step"},
                                           {"site_states", "run, site, step"}};
constexpr const char* small_tables[] = {"histogram_steps", "documents", "config", "quantities", "sites",
                                        "statistics",      "revisions", "tags",   "annotations"};

void check_bounds(const RunEdit& edit) {
  const bool too_long = (edit.name && characters_in(*edit.name) > longest_run_name) ||
                        (edit.note && characters_in(*edit.note) > longest_run_note);
  if (too_long) {
    throw Error("the name or the note is too long",
                fmt::format("give at most {} and {} characters", longest_run_name, longest_run_note));
  }
  if (!edit.tags) return;
  const bool has_long_tag = std::any_of(edit.tags->begin(), edit.tags->end(),
                                        [](const std::string& tag) { return characters_in(tag) > longest_tag; });
  if (edit.tags->size() > most_tags || has_long_tag) {
    throw Error("too many tags, or too long ones",
                fmt::format("give at most {} tags of {} characters", most_tags, longest_tag));
  }
}

NoSuchRecord no_such_run(const Database& database, const std::string& id) {
  return NoSuchRecord(fmt::format("{} has no run {}", database.path().filename().string(), id),
                      "choose one of the runs it lists");
}

void write_tags(Database& database, std::int64_t run, const std::vector<std::string>& tags) {
  database.prepared("DELETE FROM tags WHERE run=?").bind(run).run();
  for (std::size_t i = 0; i < tags.size(); ++i) {
    database.prepared("INSERT INTO tags VALUES(?,?,?)").bind(run, i, tags[i]).run();
  }
}

void write_annotations(Database& database, std::int64_t run, const RunEdit& edit) {
  database.prepared("INSERT OR IGNORE INTO annotations VALUES(?,NULL,'',0,NULL)").bind(run).run();
  if (edit.name) {
    database.prepared("UPDATE annotations SET name=nullif(?,'') WHERE run=?").bind(*edit.name, run).run();
  }
  if (edit.note) database.prepared("UPDATE annotations SET note=? WHERE run=?").bind(*edit.note, run).run();
  if (edit.hidden) {
    database.prepared("UPDATE annotations SET hidden=? WHERE run=?").bind(*edit.hidden ? 1 : 0, run).run();
  }
  if (!edit.deleted) return;
  if (*edit.deleted) {
    database.prepared("UPDATE annotations SET deleted=? WHERE run=? AND deleted IS NULL")
        .bind(seconds_now(), run)
        .run();
  } else {
    database.prepared("UPDATE annotations SET deleted=NULL WHERE run=?").bind(run).run();
  }
}

// The run's key. Asked in every transaction: between two of them the run may be restored, or train again.
std::int64_t removable_run(Database& database, const std::string& id) {
  Statement& row = database
                       .prepared(
                           "SELECT r.key, r.status, r.heartbeat, a.deleted FROM runs r LEFT JOIN annotations a ON "
                           "a.run=r.key WHERE r.id=?")
                       .bind(id);
  if (!row.step()) throw no_such_run(database, id);
  if (status_from(row.column_text(1), row.column_double(2)) == RunStatus::running) {
    throw EditConflict("the run is training", "stop it first; its records cannot be removed while it writes them");
  }
  if (row.column_null(3)) {
    throw EditConflict("the run has not been deleted", "delete it first: that can be undone, and this cannot");
  }
  return row.column_int(0);
}

// True: there may be more.
bool remove_some(Database& database, const std::string& id, const GrowingTable& table) {
  Transaction transaction(database, Transaction::Mode::write);
  const std::int64_t run = removable_run(database, id);
  database
      .prepared(fmt::format("DELETE FROM {0} WHERE ({1}) IN (SELECT {1} FROM {0} WHERE run=? LIMIT {2})", table.name,
                            table.key, rows_per_transaction))
      .bind(run)
      .run();
  const bool is_full = database.changed_rows() == rows_per_transaction;
  transaction.commit();
  return is_full;
}

Database open_for_edits(const std::filesystem::path& store) {
  return {store, Database::Access::existing, edit_patience};
}

}  // namespace

std::size_t characters_in(std::string_view text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

void edit_run(const std::filesystem::path& store, const std::string& id, const RunEdit& edit) {
  check_bounds(edit);
  Database database = open_for_edits(store);
  prepare_store(database);
  Transaction transaction(database, Transaction::Mode::write);
  Statement& known = database.prepared("SELECT key FROM runs WHERE id=?").bind(id);
  if (!known.step()) throw no_such_run(database, id);
  const std::int64_t run = known.column_int(0);
  if (edit.tags) write_tags(database, run, *edit.tags);
  write_annotations(database, run, edit);
  database
      .prepared("INSERT INTO revisions VALUES(?,'status',1) ON CONFLICT(run,kind) DO UPDATE SET revision=revision+1")
      .bind(run)
      .run();
  transaction.commit();
}

void remove_run(const std::filesystem::path& store, const std::string& id) {
  Database database = open_for_edits(store);
  prepare_store(database);
  for (const GrowingTable& table : growing_tables) {
    while (remove_some(database, id, table)) {
    }
  }
  Transaction transaction(database, Transaction::Mode::write);
  const std::int64_t run = removable_run(database, id);
  for (const GrowingTable& table : growing_tables) {
    Statement(database, fmt::format("DELETE FROM {} WHERE run=?", table.name)).bind(run).run();
  }
  for (const char* table : small_tables) {
    Statement(database, fmt::format("DELETE FROM {} WHERE run=?", table)).bind(run).run();
  }
  database.prepared("DELETE FROM runs WHERE key=?").bind(run).run();
  transaction.commit();
}

}  // namespace quaver
