#include "store/histograms.h"

#include <algorithm>
#include <fmt/format.h>

#include "store/checksum.h"

namespace quaver {

namespace {

constexpr std::size_t sites_per_row = 128;

}  // namespace

std::uint64_t histogram_stride(std::uint64_t newest) {
  std::uint64_t stride = 1;
  while (newest / stride >= kept_histograms - 1) stride *= 2;
  return stride;
}

void encode_counts(const BinadeCounts& counts, std::vector<std::byte>& into) {
  const auto is_set = [](std::uint64_t count) { return count != 0; };
  const auto first = std::find_if(counts.begin(), counts.end(), is_set);
  const auto end = std::find_if(counts.rbegin(), counts.rend(), is_set).base();
  const auto length = first < end ? end - first : 0;
  into.push_back(static_cast<std::byte>(length > 0 ? first - counts.begin() : 0));
  into.push_back(static_cast<std::byte>(length));
  for (auto count = first; count < end; ++count) {
    std::uint64_t rest = *count;
    for (; rest >= 0x80U; rest >>= 7U) into.push_back(static_cast<std::byte>((rest & 0x7FU) | 0x80U));
    into.push_back(static_cast<std::byte>(rest));
  }
}

std::optional<BinadeCounts> decode_counts(std::span<const std::byte>& bytes) {
  if (bytes.size() < 2) return std::nullopt;
  const auto first = std::to_integer<std::size_t>(bytes[0]);
  const auto length = std::to_integer<std::size_t>(bytes[1]);
  bytes = bytes.subspan(2);
  BinadeCounts counts{};
  if (first + length > counts.size()) return std::nullopt;
  for (std::size_t i = first; i < first + length; ++i) {
    for (unsigned shift = 0;; shift += 7) {
      if (bytes.empty() || shift > 63) return std::nullopt;
      const auto byte = std::to_integer<std::uint64_t>(bytes[0]);
      bytes = bytes.subspan(1);
      counts[i] |= (byte & 0x7FU) << shift;
      if ((byte & 0x80U) == 0) break;
    }
  }
  return counts;
}

std::uint64_t HistogramTable::next() const {
  Statement& last = database_.prepared("SELECT max(ordinal) FROM histogram_steps WHERE run=?").bind(run_);
  const bool any = last.step() && !last.column_null(0);
  return any ? last.column_unsigned(0) + 1 : 0;
}

void HistogramTable::append(std::uint64_t step, std::uint64_t ordinal, std::span<const BinadeCounts> sites) {
  const std::uint64_t stride = histogram_stride(ordinal);
  std::vector<std::uint64_t> superfluous;
  Statement& kept = database_.prepared("SELECT step, ordinal FROM histogram_steps WHERE run=?").bind(run_);
  while (kept.step()) {
    if (kept.column_unsigned(1) % stride != 0) superfluous.push_back(kept.column_unsigned(0));
  }
  for (const std::uint64_t old : superfluous) remove(old);

  database_.prepared("INSERT OR REPLACE INTO histogram_steps VALUES(?,?,?)").bind(run_, step, ordinal).run();
  std::vector<std::byte> bytes;
  for (std::size_t row = 0; row * sites_per_row < sites.size(); ++row) {
    bytes.clear();
    const auto part = sites.subspan(row * sites_per_row);
    for (const BinadeCounts& counts : part.first(std::min(part.size(), sites_per_row))) encode_counts(counts, bytes);
    database_.prepared("INSERT OR REPLACE INTO histograms VALUES(?,?,?,?,?)")
        .bind(run_, step, row, std::span<const std::byte>(bytes), checksum_of(bytes))
        .run();
  }
}

void HistogramTable::remove(std::uint64_t step) {
  database_.prepared("DELETE FROM histogram_steps WHERE run=? AND step=?").bind(run_, step).run();
  database_.prepared("DELETE FROM histograms WHERE run=? AND step=?").bind(run_, step).run();
}

void HistogramTable::remove_after(std::uint64_t last_step) {
  database_.prepared("DELETE FROM histogram_steps WHERE run=? AND step>?").bind(run_, last_step).run();
  database_.prepared("DELETE FROM histograms WHERE run=? AND step>?").bind(run_, last_step).run();
}

std::vector<std::uint64_t> HistogramTable::steps() const {
  std::vector<std::uint64_t> steps;
  Statement& rows = database_.prepared("SELECT step FROM histogram_steps WHERE run=? ORDER BY step").bind(run_);
  while (rows.step()) steps.push_back(rows.column_unsigned(0));
  return steps;
}

std::optional<BinadeCounts> HistogramTable::read(std::uint64_t step, std::size_t site) const {
  Statement& row = database_
                       .prepared(fmt::format("SELECT data, {} FROM histograms WHERE run=? AND step=? AND chunk=?",
                                             checksum_column(database_)))
                       .bind(run_, step, site / sites_per_row);
  if (!row.step()) return std::nullopt;
  std::span<const std::byte> bytes = row.column_blob(0);
  std::optional<BinadeCounts> counts = is_intact(row, 0, 1) ? decode_counts(bytes) : std::nullopt;
  for (std::size_t before = 0; counts && before < site % sites_per_row; ++before) counts = decode_counts(bytes);
  if (!counts) tell_damage(step);
  return counts;
}

void HistogramTable::check(std::size_t sites) const {
  Statement& rows = database_
                        .prepared(fmt::format("SELECT data, {}, step, chunk FROM histograms WHERE run=? ORDER BY step",
                                              checksum_column(database_)))
                        .bind(run_);
  while (rows.step()) {
    const std::uint64_t first = std::min<std::uint64_t>(rows.column_unsigned(3), sites) * sites_per_row;
    std::span<const std::byte> bytes = rows.column_blob(0);
    bool good = is_intact(rows, 0, 1) && first < sites;
    for (std::uint64_t i = first; good && i < std::min<std::uint64_t>(sites, first + sites_per_row); ++i) {
      good = decode_counts(bytes).has_value();
    }
    if (!good || !bytes.empty()) tell_damage(rows.column_unsigned(2));
  }
}

}  // namespace quaver
