#include "store/database.h"

#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <sqlite3.h>
#include <utility>

namespace quaver {

namespace fs = std::filesystem;

namespace {

StoreFailure::Kind kind_of(int code) {
  switch (code & 0xFF) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_NOMEM:
    case SQLITE_INTERRUPT:
    case SQLITE_PROTOCOL:
      return StoreFailure::Kind::passing;
    default:
      return StoreFailure::Kind::lasting;
  }
}

std::string remedy_for(int code, const fs::path& path) {
  const std::string folder = path.has_parent_path() ? path.parent_path().string() : ".";
  switch (code & 0xFF) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      return "another process holds it: end what has it open for writing, such as a sqlite3 shell with a transaction";
    case SQLITE_FULL:
      return fmt::format("free space on the file system of {}", folder);
    case SQLITE_IOERR:
      return fmt::format("check the disk and the free space of {}", folder);
    case SQLITE_PROTOCOL:
      return "the file system does not lock files as SQLite needs: keep runs on a local disk";
    case SQLITE_NOMEM:
      return "free memory";
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return "it is damaged or not a store: move it away (a new one is made; run folders keep their own logs)";
    case SQLITE_READONLY:
    case SQLITE_PERM:
    case SQLITE_AUTH:
      return fmt::format("check the owner and the permissions of it and of {}", folder);
    case SQLITE_CANTOPEN:
      return fmt::format("check that {} exists and can be written", folder);
    default:
      return "check the file with `sqlite3 FILE 'PRAGMA integrity_check'`, or move it away";
  }
}

// SQLite takes flags such as immutable=1 in a URI only, where ?, # and % have meanings.
std::string uri_of(const fs::path& path, std::string_view parameters) {
  std::string uri = "file:";
  for (const char c : fs::absolute(path).string()) {
    if (c == '?' || c == '#' || c == '%') {
      uri += fmt::format("%{:02X}", static_cast<unsigned char>(c));
    } else {
      uri += c;
    }
  }
  return uri + std::string(parameters);
}

int flags_of(Database::Access access) {
  constexpr int common = SQLITE_OPEN_URI | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE;
  switch (access) {
    case Database::Access::write:
      return common | SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    case Database::Access::existing:
      return common | SQLITE_OPEN_READWRITE;
    default:
      return common | SQLITE_OPEN_READONLY;
  }
}

// SQLite would wait for whoever writes to a pipe.
void refuse_what_is_no_file(const fs::path& path) {
  std::error_code failure;
  const fs::file_status status = fs::status(path, failure);
  if (!fs::exists(status) || fs::is_regular_file(status)) return;
  throw StoreFailure(StoreFailure::Kind::lasting, fmt::format("{} is not a regular file, so no store", path.string()),
                     "move it away, or name another folder of runs");
}

}  // namespace

Database::Database(fs::path path, Access access, std::chrono::milliseconds busy_timeout) : path_(std::move(path)) {
  refuse_what_is_no_file(path_);
  const std::string uri = uri_of(path_, access == Access::immutable ? "?immutable=1" : "");
  const int code = sqlite3_open_v2(uri.c_str(), &handle_, flags_of(access), nullptr);
  try {
    if (code != SQLITE_OK) fail(code);
    sqlite3_busy_timeout(handle_, static_cast<int>(busy_timeout.count()));
    // The file may come from anywhere: nothing in its schema is run, and cells are checked as they are read.
    sqlite3_db_config(handle_, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
    execute("PRAGMA trusted_schema=OFF");
    execute("PRAGMA cell_size_check=ON");
  } catch (...) {
    statements_.clear();
    sqlite3_close_v2(handle_);
    throw;
  }
}

Database::~Database() {
  statements_.clear();
  sqlite3_close_v2(handle_);
}

void Database::fail(int code) const {
  const char* message = handle_ != nullptr ? sqlite3_errmsg(handle_) : sqlite3_errstr(code);
  throw StoreFailure(kind_of(code), fmt::format("{}: {}", path_.string(), message), remedy_for(code, path_));
}

void Database::execute(std::string_view sql) {
  const std::string text(sql);
  const int code = sqlite3_exec(handle_, text.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) fail(code);
}

std::int64_t Database::pragma(const std::string& name) {
  Statement statement(*this, "PRAGMA " + name);
  return statement.step() ? statement.column_int(0) : 0;
}

Statement& Database::prepared(std::string_view sql) {
  std::string key(sql);
  auto found = statements_.find(key);
  if (found == statements_.end()) found = statements_.emplace(key, Statement(*this, sql)).first;
  found->second.reset();
  return found->second;
}

void Database::reset_statements() {
  for (auto& [sql, statement] : statements_) statement.reset();
}

std::int64_t Database::last_insert_id() const { return sqlite3_last_insert_rowid(handle_); }

std::int64_t Database::changed_rows() const { return sqlite3_changes(handle_); }

Statement::Statement(Database& database, std::string_view sql) : database_(&database) {
  const int code =
      sqlite3_prepare_v2(database.handle(), sql.data(), static_cast<int>(sql.size()), &statement_, nullptr);
  if (code != SQLITE_OK) database.fail(code);
}

Statement::~Statement() { sqlite3_finalize(statement_); }

Statement::Statement(Statement&& other) noexcept
    : database_(other.database_), statement_(std::exchange(other.statement_, nullptr)) {}

void Statement::check(int code) const {
  if (code != SQLITE_OK) database_->fail(code);
}

bool Statement::step() {
  const int code = sqlite3_step(statement_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) {
    sqlite3_reset(statement_);
    return false;
  }
  // The message lives until the next call: it is taken before the reset that lets the statement be used again.
  try {
    database_->fail(code);
  } catch (...) {
    sqlite3_reset(statement_);
    throw;
  }
}

void Statement::run() {
  while (step()) {
  }
}

void Statement::reset() { sqlite3_reset(statement_); }

std::int64_t Statement::column_int(int column) const { return sqlite3_column_int64(statement_, column); }

std::uint64_t Statement::column_unsigned(int column) const {
  const std::int64_t value = column_int(column);
  return value < 0 ? 0 : static_cast<std::uint64_t>(value);
}

double Statement::column_double(int column) const {
  return column_null(column) ? std::numeric_limits<double>::quiet_NaN() : sqlite3_column_double(statement_, column);
}

std::string Statement::column_text(int column) const {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement_, column));
  if (text == nullptr) return {};
  return {text, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

std::span<const std::byte> Statement::column_blob(int column) const {
  const auto* bytes = static_cast<const std::byte*>(sqlite3_column_blob(statement_, column));
  if (bytes == nullptr) return {};
  return {bytes, static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}

bool Statement::column_null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }

void Statement::bind_at(int index, std::int64_t value) { check(sqlite3_bind_int64(statement_, index, value)); }

void Statement::bind_at(int index, double value) {
  check(std::isnan(value) ? sqlite3_bind_null(statement_, index) : sqlite3_bind_double(statement_, index, value));
}

void Statement::bind_at(int index, std::string_view value) {
  check(sqlite3_bind_text64(statement_, index, value.data() != nullptr ? value.data() : "", value.size(),
                            SQLITE_TRANSIENT, SQLITE_UTF8));
}

void Statement::bind_at(int index, std::span<const std::byte> value) {
  check(sqlite3_bind_blob64(statement_, index, value.data(), value.size(), SQLITE_STATIC));
}

void Statement::bind_at(int index, std::nullopt_t) { check(sqlite3_bind_null(statement_, index)); }

Transaction::Transaction(Database& database, Mode mode) : database_(database) {
  // IMMEDIATE: whoever writes waits for the lock here, not half-way, where SQLite could only refuse.
  database_.execute(mode == Mode::write ? "BEGIN IMMEDIATE" : "BEGIN");
}

Transaction::~Transaction() {
  if (open_) database_.reset_statements();
  // Some failures, a full disk among them, roll back by themselves; then there is nothing left to do.
  if (open_ && sqlite3_get_autocommit(database_.handle()) == 0) {
    sqlite3_exec(database_.handle(), "ROLLBACK", nullptr, nullptr, nullptr);
  }
}

void Transaction::commit() {
  database_.reset_statements();
  database_.execute("COMMIT");
  open_ = false;
}

}  // namespace quaver
