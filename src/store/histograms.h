// Histograms of binades: those of at most 64 steps of a run are kept, spread over it, always with the newest.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "store/database.h"
#include "store/records.h"

namespace quaver {

inline constexpr std::uint64_t kept_histograms = 64;

// Histogram n of a run stays when n is a multiple of this: a power of two that leaves fewer than kept_histograms.
std::uint64_t histogram_stride(std::uint64_t newest);

// A site's counts as bytes: index of the first count that is not zero, how many follow up to the last that is not, and
// these as LEB128. decode takes one site off the front; nothing where the bytes are not such an encoding.
void encode_counts(const BinadeCounts& counts, std::vector<std::byte>& into);
std::optional<BinadeCounts> decode_counts(std::span<const std::byte>& bytes);

class HistogramTable {
 public:
  // What to do about a row that is not as it was written. It is skipped.
  using OnDamage = std::function<void(std::uint64_t step)>;
  HistogramTable(Database& database, std::int64_t run, OnDamage on_damage = {})
      : database_(database), run_(run), on_damage_(std::move(on_damage)) {}

  // Of the histogram that comes next. One that is not `worth_writing` may be left out if a newer one is at hand.
  std::uint64_t next() const;
  static bool worth_writing(std::uint64_t ordinal) { return ordinal % histogram_stride(ordinal) == 0; }

  void append(std::uint64_t step, std::uint64_t ordinal, std::span<const BinadeCounts> sites);
  void remove_after(std::uint64_t last_step);

  std::vector<std::uint64_t> steps() const;

  // Nothing where no row has it.
  std::optional<BinadeCounts> read(std::uint64_t step, std::size_t site) const;

  // Reads every row of the run, which has so many sites.
  void check(std::size_t sites) const;

 private:
  void remove(std::uint64_t step);
  void tell_damage(std::uint64_t step) const {
    if (on_damage_) on_damage_(step);
  }

  Database& database_;
  std::int64_t run_;
  OnDamage on_damage_;
};

}  // namespace quaver
