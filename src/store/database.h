// SQLite as the store uses it: a connection, statements whose parameters are always bound, transactions. Failures are
// StoreFailure, an Error that knows whether trying again may help.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "quaver/error.h"

struct sqlite3;
struct sqlite3_stmt;

namespace quaver {

class StoreFailure : public Error {
 public:
  enum class Kind : std::uint8_t {
    passing,  // locked by another, disk full, device trouble: may be better later
    lasting,  // corrupt, not a store, read-only, written by a newer version
  };
  StoreFailure(Kind kind, const std::string& what, std::string remedy) : Error(what, std::move(remedy)), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

class Database;

// A prepared statement, reset and ready to bind. Parameters are numbered from 1, columns from 0, as in SQLite.
class Statement {
 public:
  Statement(Database& database, std::string_view sql);
  ~Statement();
  Statement(Statement&& other) noexcept;
  Statement(const Statement&) = delete;
  Statement& operator=(const Statement&) = delete;

  // Binds in order, from the first parameter on. A NaN becomes NULL, which column_double gives back as NaN.
  template <typename... Values>
  Statement& bind(const Values&... values) {
    reset();
    int index = 0;
    (bind_at(++index, values), ...);
    return *this;
  }

  bool step();  // true: a row is there
  void run();   // to the end, without rows
  void reset();

  std::int64_t column_int(int column) const;
  std::uint64_t column_unsigned(int column) const;  // negative values, which the store never writes, as 0
  double column_double(int column) const;
  std::string column_text(int column) const;
  std::span<const std::byte> column_blob(int column) const;  // until the next step
  bool column_null(int column) const;

 private:
  void bind_at(int index, std::int64_t value);
  void bind_at(int index, std::uint64_t value) { bind_at(index, static_cast<std::int64_t>(value)); }
  void bind_at(int index, int value) { bind_at(index, static_cast<std::int64_t>(value)); }
  void bind_at(int index, double value);
  void bind_at(int index, std::string_view value);
  void bind_at(int index, const std::string& value) { bind_at(index, std::string_view(value)); }
  void bind_at(int index, const char* value) { bind_at(index, std::string_view(value)); }
  void bind_at(int index, std::span<const std::byte> value);
  void bind_at(int index, std::nullopt_t value);
  void bind_at(int index, const std::optional<std::string>& value) {
    if (value) {
      bind_at(index, std::string_view(*value));
    } else {
      bind_at(index, std::nullopt);
    }
  }
  void check(int code) const;

  Database* database_;
  sqlite3_stmt* statement_ = nullptr;
};

class Database {
 public:
  enum class Access : std::uint8_t {
    write,     // opens or makes the file
    existing,  // writes, but the file must be there
    read,
    immutable,  // reads a file that nobody writes, in a folder that cannot be written
  };
  Database(std::filesystem::path path, Access access, std::chrono::milliseconds busy_timeout);
  ~Database();
  Database(const Database&) = delete;
  Database& operator=(const Database&) = delete;

  const std::filesystem::path& path() const { return path_; }
  void execute(std::string_view sql);
  std::int64_t pragma(const std::string& name);

  // A statement that is prepared once and kept; use it up before asking for the same again.
  Statement& prepared(std::string_view sql);

  // A statement that stopped half-way keeps its view of the file, and with it the log from being cleared.
  void reset_statements();

  std::int64_t last_insert_id() const;
  std::int64_t changed_rows() const;  // by the last statement that wrote
  [[noreturn]] void fail(int code) const;
  sqlite3* handle() const { return handle_; }

 private:
  std::filesystem::path path_;
  sqlite3* handle_ = nullptr;
  std::unordered_map<std::string, Statement> statements_;
};

// Rolled back unless committed.
class Transaction {
 public:
  enum class Mode : std::uint8_t { read, write };
  Transaction(Database& database, Mode mode);
  ~Transaction();
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;
  void commit();

 private:
  Database& database_;
  bool open_ = true;
};

}  // namespace quaver
