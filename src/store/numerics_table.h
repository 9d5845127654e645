// Numerics as matrices: how the statistics of thousands of sites are stored in the table `numerics` (see schema.cpp),
// with a pyramid over time, so that any span of a run is drawn from a bounded number of rows. Nothing is kept in memory
// between samples: what a level needs is read back from the level below, so a crash or a rewind has nothing to repair.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "store/database.h"
#include "store/records.h"

namespace quaver {

inline constexpr float not_recorded = std::numeric_limits<float>::quiet_NaN();

// Sites in one row: few enough that one site's history reads little beside it, and such that rows fill the file's pages
// of 4 KiB. SQLite keeps up to 1002 bytes of a row in the page of its key, of which four then fit; of a longer row it
// keeps at least 489 there and gives the rest pages of its own, which is worth it for a row that fills one.
inline constexpr std::size_t most_sites_per_chunk = 1024;
constexpr std::size_t sites_per_chunk(std::size_t sites) { return sites < 720 ? 240 : most_sites_per_chunk; }
inline constexpr std::uint64_t samples_per_group = 8;  // of one level, in a bin of the next
inline constexpr int numerics_levels = 9;

constexpr std::uint64_t samples_per_bin(int level) {
  std::uint64_t samples = 1;
  for (int i = 0; i < level; ++i) samples *= samples_per_group;
  return samples;
}

// The worse of two values; a NaN is worse than nothing.
float worse_of(WorseWay way, float a, float b);
void take_worse(WorseWay way, std::span<float> into, std::span<const float> values);

// Which sites have which role, in the order of the run's sites; roles in the order of their first sites.
struct SiteLayout {
  struct Role {
    std::string name;
    std::vector<std::size_t> sites;
    std::size_t chunk_sites() const { return sites_per_chunk(sites.size()); }  // of every chunk but the last
    std::size_t chunks() const { return (sites.size() + chunk_sites() - 1) / chunk_sites(); }
    std::size_t chunk_size(std::size_t chunk) const {
      return std::min(chunk_sites(), sites.size() - chunk * chunk_sites());
    }
  };
  static SiteLayout of(std::span<const std::string> roles_of_sites);
  std::vector<Role> roles;
  std::size_t sites = 0;
};

struct StoredStatistic {
  std::int64_t id = 0;
  WorseWay worse = WorseWay::higher;
};

class NumericsTable {
 public:
  // What to do about a row that is not as it was written, given its first sample. Its values are skipped.
  using OnDamage = std::function<void(std::uint64_t first_sample)>;
  NumericsTable(Database& database, std::int64_t run, const SiteLayout& layout, OnDamage on_damage = {});

  // values: [sites × statistics]. False: a sample of this step or a later one is there already.
  bool append(std::uint64_t step, std::span<const float> values, std::span<const StoredStatistic> statistics);
  void remove_after(std::uint64_t last_step, std::span<const StoredStatistic> statistics);

  // Samples recorded at steps from..to. They are numbered without gaps; Error where a damaged store says otherwise.
  struct Steps {
    std::uint64_t first_sample = 0;
    std::vector<std::uint64_t> steps;
  };
  Steps steps(std::uint64_t from, std::uint64_t to) const;

  // Which rows of the table: one statistic, one role, chunks [first_chunk, end_chunk), samples [begin, end).
  struct Range {
    std::int64_t statistic = 0;
    std::size_t role = 0;
    std::size_t first_chunk = 0;
    std::size_t end_chunk = 0;
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
  };
  // Covers the range with the bins of `level`, and of lower levels at its ends: every sample is in one bin visited.
  using Visitor = std::function<void(std::uint64_t first_sample, std::size_t chunk, std::span<const float> values)>;
  void visit(const Range& range, int level, const Visitor& visit) const;

  // Reads every row of the run, at every level.
  void check() const;

 private:
  struct Cell {  // what the rows of one chunk of sites have in common
    int level = 0;
    std::int64_t statistic = 0;
    std::size_t role = 0;
    std::size_t chunk = 0;
  };
  void gather(std::uint64_t sample, std::span<const float> values, std::span<const StoredStatistic> statistics);
  void summarize(int level, std::uint64_t bin, std::span<const StoredStatistic> statistics);
  void summarize(const Cell& below, std::uint64_t bin, WorseWay worse);
  void insert(const Cell& cell, std::uint64_t bin, std::span<const float> values);
  void insert_bytes(const Cell& cell, std::uint64_t bin, std::span<const std::byte> bytes);
  void cut(const Cell& cell, std::uint64_t bins);
  void visit_level(const Range& range, int level, const Visitor& visit) const;
  void tell_damage(std::uint64_t first_sample) const {
    if (on_damage_) on_damage_(first_sample);
  }
  bool is_good(const Statement& row, std::size_t bin_bytes) const;
  Statement& rows_between(const Cell& cell, std::uint64_t begin, std::uint64_t end) const;

  Database& database_;
  std::int64_t run_;
  const SiteLayout& layout_;
  OnDamage on_damage_;
  std::string select_;  // rows of a cell between two bins: bin, data, checksum
};

}  // namespace quaver
