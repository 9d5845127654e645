#include "store/numerics_table.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>

#include "store/checksum.h"

namespace quaver {

static_assert(std::endian::native == std::endian::little, "blobs hold little-endian floats");

namespace {

// Written so that a NaN in b never wins and a NaN in a always loses.
template <WorseWay way>
float worse(float a, float b) {
  if constexpr (way == WorseWay::higher) return !(a >= b) && b == b ? b : a;
  if constexpr (way == WorseWay::lower) return !(a <= b) && b == b ? b : a;
  return !(std::fabs(a) >= std::fabs(b)) && b == b ? b : a;
}

template <WorseWay way>
void take_all(std::span<float> into, std::span<const float> values) {
  for (std::size_t i = 0; i < into.size(); ++i) into[i] = worse<way>(into[i], values[i]);
}

bool has_values(std::span<const float> values) {
  return std::any_of(values.begin(), values.end(), [](float value) { return !std::isnan(value); });
}

// From this size on the bins of a group share a row once the group is complete. Pages are then read in long runs; of
// smaller rows many share a page anyway.
constexpr std::size_t smallest_shared_row = 3072;

// How many bins of this size a row that begins at `bin` holds. A row that cannot be is damaged, and counts as none.
std::uint64_t bins_in(std::span<const std::byte> blob, std::size_t bin_bytes, std::uint64_t bin) {
  const std::uint64_t count = blob.size() / bin_bytes;
  const bool whole = blob.size() % bin_bytes == 0 && bin % samples_per_group + count <= samples_per_group;
  return whole ? count : 0;
}

std::uint64_t group_begin(std::uint64_t bin) { return bin / samples_per_group * samples_per_group; }

}  // namespace

float worse_of(WorseWay way, float a, float b) {
  switch (way) {
    case WorseWay::higher:
      return worse<WorseWay::higher>(a, b);
    case WorseWay::lower:
      return worse<WorseWay::lower>(a, b);
    case WorseWay::larger_magnitude:
      break;
  }
  return worse<WorseWay::larger_magnitude>(a, b);
}

void take_worse(WorseWay way, std::span<float> into, std::span<const float> values) {
  switch (way) {
    case WorseWay::higher:
      return take_all<WorseWay::higher>(into, values);
    case WorseWay::lower:
      return take_all<WorseWay::lower>(into, values);
    case WorseWay::larger_magnitude:
      return take_all<WorseWay::larger_magnitude>(into, values);
  }
}

SiteLayout SiteLayout::of(std::span<const std::string> roles_of_sites) {
  SiteLayout layout;
  layout.sites = roles_of_sites.size();
  for (std::size_t site = 0; site < roles_of_sites.size(); ++site) {
    auto role = std::find_if(layout.roles.begin(), layout.roles.end(),
                             [&](const Role& known) { return known.name == roles_of_sites[site]; });
    if (role == layout.roles.end()) role = layout.roles.insert(role, Role{roles_of_sites[site], {}});
    role->sites.push_back(site);
  }
  return layout;
}

NumericsTable::NumericsTable(Database& database, std::int64_t run, const SiteLayout& layout, OnDamage on_damage)
    : database_(database),
      run_(run),
      layout_(layout),
      on_damage_(std::move(on_damage)),
      select_(fmt::format("SELECT bin, data, {} FROM numerics WHERE run=? AND level=? AND statistic=? AND role=? AND "
                          "chunk=? AND bin>=? AND bin<? ORDER BY bin",
                          checksum_column(database))) {}

bool NumericsTable::append(std::uint64_t step, std::span<const float> values,
                           std::span<const StoredStatistic> statistics) {
  Statement& last =
      database_.prepared("SELECT step, sample FROM numerics_steps WHERE run=? ORDER BY step DESC LIMIT 1").bind(run_);
  std::uint64_t sample = 0;
  if (last.step()) {
    if (step <= last.column_unsigned(0)) return false;
    sample = last.column_unsigned(1) + 1;
  }
  database_.prepared("INSERT INTO numerics_steps VALUES(?,?,?)").bind(run_, step, sample).run();
  gather(sample, values, statistics);
  for (int level = 1; level < numerics_levels; ++level) {
    const std::uint64_t size = samples_per_bin(level);
    if ((sample + 1) % size != 0) break;
    summarize(level, sample / size, statistics);
  }
  return true;
}

void NumericsTable::gather(std::uint64_t sample, std::span<const float> values,
                           std::span<const StoredStatistic> statistics) {
  std::array<float, most_sites_per_chunk> of_chunk{};
  for (std::size_t column = 0; column < statistics.size(); ++column) {
    for (std::size_t r = 0; r < layout_.roles.size(); ++r) {
      const SiteLayout::Role& role = layout_.roles[r];
      for (std::size_t chunk = 0; chunk < role.chunks(); ++chunk) {
        const std::size_t size = role.chunk_size(chunk);
        for (std::size_t i = 0; i < size; ++i) {
          of_chunk[i] = values[role.sites[chunk * role.chunk_sites() + i] * statistics.size() + column];
        }
        insert({0, statistics[column].id, r, chunk}, sample, std::span(of_chunk).first(size));
      }
    }
  }
}

void NumericsTable::insert(const Cell& cell, std::uint64_t bin, std::span<const float> values) {
  if (!has_values(values)) return;
  insert_bytes(cell, bin, std::as_bytes(values));
}

void NumericsTable::insert_bytes(const Cell& cell, std::uint64_t bin, std::span<const std::byte> bytes) {
  database_.prepared("INSERT OR REPLACE INTO numerics VALUES(?,?,?,?,?,?,?,?)")
      .bind(run_, cell.level, cell.statistic, cell.role, cell.chunk, bin, bytes, checksum_of(bytes))
      .run();
}

void NumericsTable::summarize(int level, std::uint64_t bin, std::span<const StoredStatistic> statistics) {
  for (const StoredStatistic& statistic : statistics) {
    for (std::size_t role = 0; role < layout_.roles.size(); ++role) {
      for (std::size_t chunk = 0; chunk < layout_.roles[role].chunks(); ++chunk) {
        summarize({level - 1, statistic.id, role, chunk}, bin, statistic.worse);
      }
    }
  }
}

// The group of the level below that makes up `bin` is complete: its worst goes one level up, its rows become one.
void NumericsTable::summarize(const Cell& below, std::uint64_t bin, WorseWay worse) {
  const std::size_t size = layout_.roles[below.role].chunk_size(below.chunk);
  const std::uint64_t first = bin * samples_per_group;
  const std::uint64_t samples = samples_per_bin(below.level);
  std::vector<float> group(samples_per_group * size, not_recorded);
  std::vector<float> worst(size, not_recorded);
  visit_level({.statistic = below.statistic,
               .role = below.role,
               .first_chunk = below.chunk,
               .end_chunk = below.chunk + 1,
               .begin = first * samples,
               .end = (first + samples_per_group) * samples},
              below.level, [&](std::uint64_t sample, std::size_t, std::span<const float> values) {
                take_worse(worse, worst, values);
                std::copy(values.begin(), values.end(), group.data() + (sample / samples - first) * size);
              });
  insert({below.level + 1, below.statistic, below.role, below.chunk}, bin, worst);
  if (group.size() * sizeof(float) < smallest_shared_row) return;
  insert(below, first, group);
  database_
      .prepared(
          "DELETE FROM numerics WHERE run=? AND level=? AND statistic=? AND role=? AND chunk=? AND bin>? AND "
          "bin<?")
      .bind(run_, below.level, below.statistic, below.role, below.chunk, first, first + samples_per_group)
      .run();
}

// Keeps the first bins of a level: a row that several share may lose some of them.
void NumericsTable::cut(const Cell& cell, std::uint64_t bins) {
  const std::size_t bin_bytes = layout_.roles[cell.role].chunk_size(cell.chunk) * sizeof(float);
  std::vector<std::byte> left;
  std::uint64_t left_bin = 0;
  Statement& rows = rows_between(cell, group_begin(bins), bins);
  while (rows.step()) {
    const std::uint64_t bin = rows.column_unsigned(0);
    const std::span<const std::byte> blob = rows.column_blob(1);
    if (!is_good(rows, bin_bytes) || bin + bins_in(blob, bin_bytes, bin) <= bins) continue;
    const auto kept = blob.first((bins - bin) * bin_bytes);
    left.assign(kept.begin(), kept.end());
    left_bin = bin;
  }
  if (!left.empty()) insert_bytes(cell, left_bin, left);
  database_.prepared("DELETE FROM numerics WHERE run=? AND level=? AND statistic=? AND role=? AND chunk=? AND bin>=?")
      .bind(run_, cell.level, cell.statistic, cell.role, cell.chunk, bins)
      .run();
}

void NumericsTable::remove_after(std::uint64_t last_step, std::span<const StoredStatistic> statistics) {
  const auto samples_up_to = [&](std::uint64_t step) -> std::uint64_t {
    Statement& last =
        database_.prepared("SELECT sample FROM numerics_steps WHERE run=? AND step<=? ORDER BY step DESC LIMIT 1")
            .bind(run_, step);
    return last.step() ? last.column_unsigned(0) + 1 : 0;
  };
  const std::uint64_t all = samples_up_to(std::numeric_limits<std::int64_t>::max());
  const std::uint64_t kept = samples_up_to(last_step);
  if (kept == all) return;
  database_.prepared("DELETE FROM numerics_steps WHERE run=? AND step>?").bind(run_, last_step).run();
  for (int level = 0; level < numerics_levels && all / samples_per_bin(level) > 0; ++level) {
    for (const StoredStatistic& statistic : statistics) {
      for (std::size_t role = 0; role < layout_.roles.size(); ++role) {
        for (std::size_t chunk = 0; chunk < layout_.roles[role].chunks(); ++chunk) {
          cut({level, statistic.id, role, chunk}, kept / samples_per_bin(level));
        }
      }
    }
  }
}

NumericsTable::Steps NumericsTable::steps(std::uint64_t from, std::uint64_t to) const {
  constexpr auto largest = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  Steps found;
  Statement& rows =
      database_.prepared("SELECT step, sample FROM numerics_steps WHERE run=? AND step BETWEEN ? AND ? ORDER BY step")
          .bind(run_, std::min(from, largest), std::min(to, largest));
  while (rows.step()) {
    if (found.steps.empty()) found.first_sample = rows.column_unsigned(1);
    if (rows.column_unsigned(1) != found.first_sample + found.steps.size()) {
      throw StoreFailure(StoreFailure::Kind::lasting,
                         database_.path().string() + ": the samples of numerics are not numbered in order",
                         "the store is damaged: move it away (run folders keep their own logs)");
    }
    found.steps.push_back(rows.column_unsigned(0));
  }
  return found;
}

void NumericsTable::visit(const Range& range, int level, const Visitor& visitor) const {
  if (range.begin >= range.end) return;
  if (level == 0) return visit_level(range, 0, visitor);
  const std::uint64_t size = samples_per_bin(level);
  const std::uint64_t begin = (range.begin + size - 1) / size * size;
  const std::uint64_t end = range.end / size * size;
  if (begin >= end) return visit(range, level - 1, visitor);
  Range part = range;
  part.end = begin;
  visit(part, level - 1, visitor);
  part.begin = begin;
  part.end = end;
  visit_level(part, level, visitor);
  part.begin = end;
  part.end = range.end;
  visit(part, level - 1, visitor);
}

Statement& NumericsTable::rows_between(const Cell& cell, std::uint64_t begin, std::uint64_t end) const {
  return database_.prepared(select_).bind(run_, cell.level, cell.statistic, cell.role, cell.chunk, begin, end);
}

bool NumericsTable::is_good(const Statement& row, std::size_t bin_bytes) const {
  return is_intact(row, 1, 2) && bins_in(row.column_blob(1), bin_bytes, row.column_unsigned(0)) > 0;
}

void NumericsTable::check() const {
  Statement& rows = database_
                        .prepared(fmt::format("SELECT bin, data, {}, level, role, chunk FROM numerics WHERE run=?",
                                              checksum_column(database_)))
                        .bind(run_);
  while (rows.step()) {
    const std::uint64_t level = rows.column_unsigned(3);
    const std::uint64_t role = rows.column_unsigned(4);
    const std::uint64_t chunk = rows.column_unsigned(5);
    const bool known = level < static_cast<std::uint64_t>(numerics_levels) && role < layout_.roles.size() &&
                       chunk < layout_.roles[role].chunks();
    if (known && is_good(rows, layout_.roles[role].chunk_size(chunk) * sizeof(float))) continue;
    tell_damage(rows.column_unsigned(0) * (known ? samples_per_bin(static_cast<int>(level)) : 1));
  }
}

// Bins of one level; the range begins and ends at bins of it.
void NumericsTable::visit_level(const Range& range, int level, const Visitor& visitor) const {
  const std::uint64_t samples = samples_per_bin(level);
  const std::uint64_t begin = range.begin / samples;
  const std::uint64_t end = range.end / samples;
  std::array<float, most_sites_per_chunk> buffer{};
  for (std::size_t chunk = range.first_chunk; chunk < range.end_chunk; ++chunk) {
    const std::span<float> values = std::span(buffer).first(layout_.roles[range.role].chunk_size(chunk));
    // The first bin may lie within a row that begins before it.
    Statement& rows = rows_between({level, range.statistic, range.role, chunk}, group_begin(begin), end);
    while (rows.step()) {
      const std::uint64_t bin = rows.column_unsigned(0);
      const std::span<const std::byte> blob = rows.column_blob(1);
      const std::uint64_t count = bins_in(blob, values.size_bytes(), bin);
      if (count > 0 && bin + count <= begin) continue;
      if (!is_good(rows, values.size_bytes())) {
        tell_damage(std::max(bin, begin) * samples);
        continue;
      }
      for (std::uint64_t i = 0; i < count; ++i) {
        if (bin + i < begin || bin + i >= end) continue;
        std::memcpy(values.data(), blob.data() + i * values.size_bytes(), values.size_bytes());
        visitor((bin + i) * samples, chunk, values);
      }
    }
  }
}

}  // namespace quaver
