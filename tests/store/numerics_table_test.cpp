#include "store/numerics_table.h"

#include <gmock/gmock.h>
#include <random>

#include "store/histograms.h"
#include "store/store_fixture.h"
#include "store/thinning.h"

namespace quaver {
namespace {

using namespace test;

class Numerics : public StoreTest {};

SiteLayout layout_of(const RunDescription& run) {
  std::vector<std::string> roles;
  for (const SiteDescription& site : run.sites) roles.push_back(site.role);
  return SiteLayout::of(roles);
}

// The worst of all, by the definition.
float brute_force(WorseWay way, const std::vector<float>& values) {
  float worst = nan_value;
  for (const float value : values) {
    if (std::isnan(value)) continue;
    const bool worse = std::isnan(worst) || (way == WorseWay::higher && value > worst) ||
                       (way == WorseWay::lower && value < worst) ||
                       (way == WorseWay::larger_magnitude && std::abs(value) > std::abs(worst));
    if (worse) worst = value;
  }
  return worst;
}

TEST(WorseOf, IgnoresNaNsAndTakesInfinities) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const WorseWay way : {WorseWay::higher, WorseWay::lower, WorseWay::larger_magnitude}) {
    EXPECT_EQ(worse_of(way, nan_value, 1), 1);
    EXPECT_EQ(worse_of(way, 1, nan_value), 1);
    EXPECT_TRUE(std::isnan(worse_of(way, nan_value, nan_value)));
  }
  EXPECT_EQ(worse_of(WorseWay::higher, 1, infinity), infinity);
  EXPECT_EQ(worse_of(WorseWay::lower, 1, -infinity), -infinity);
  EXPECT_EQ(worse_of(WorseWay::larger_magnitude, 3, -4), -4);
}

TEST(SiteLayout, EveryRowOfAChunkFitsItsPages) {
  for (const std::size_t sites : {1UL, 239UL, 240UL, 241UL, 719UL, 720UL, 1024UL, 1025UL, 4000UL}) {
    const SiteLayout layout = SiteLayout::of(std::vector<std::string>(sites, "x"));
    ASSERT_EQ(layout.roles.size(), 1U);
    std::size_t total = 0;
    for (std::size_t chunk = 0; chunk < layout.roles[0].chunks(); ++chunk) {
      ASSERT_GT(layout.roles[0].chunk_size(chunk), 0U);
      ASSERT_LE(layout.roles[0].chunk_size(chunk), most_sites_per_chunk);
      total += layout.roles[0].chunk_size(chunk);
    }
    EXPECT_EQ(total, sites);
  }
}

// A run of 600 samples, recorded at every third step, with enough sites to need several chunks.
class RecordedNumerics : public StoreTest {
 protected:
  static constexpr std::size_t layers = 250;
  static constexpr std::uint64_t samples = 600;
  void SetUp() override {
    StoreTest::SetUp();
    RunRecorder recorder(store_, run_, 0, collect(), quick());
    for (std::uint64_t i = 0; i < samples; ++i) {
      recorder.numerics(step_of(i), values_of(run_, step_of(i)));
      if (i % 100 == 0) {
        ASSERT_TRUE(recorder.flush());
      }
    }
    ASSERT_TRUE(recorder.flush());
  }
  static std::uint64_t step_of(std::uint64_t sample) { return 3 * sample + 1; }

  // Every bin of every level, whichever rows they lie in.
  std::string contents() const {
    Database database(store_, Database::Access::read, std::chrono::seconds(1));
    const SiteLayout layout = layout_of(run_);
    const NumericsTable table(database, 1, layout);
    std::string all;
    for (int level = 0; level < 5; ++level) {
      for (std::int64_t statistic = 0; statistic < 3; ++statistic) {
        for (std::size_t role = 0; role < 3; ++role) {
          const std::uint64_t end = samples / samples_per_bin(level) * samples_per_bin(level);
          table.visit({statistic, role, 0, layout.roles[role].chunks(), 0, end}, level,
                      [&](std::uint64_t sample, std::size_t chunk, std::span<const float> values) {
                        all += fmt::format("{} {} {} {} {}:", level, statistic, role, sample, chunk);
                        all.append(reinterpret_cast<const char*>(values.data()), values.size_bytes());
                      });
        }
      }
    }
    return all;
  }
  RunDescription run_ = small_run("a", layers);
};

TEST_F(RecordedNumerics, EveryBinOfThePyramidIsTheWorstOfItsSamples) {
  Database database(store_, Database::Access::read, std::chrono::seconds(1));
  const SiteLayout layout = layout_of(run_);
  const NumericsTable table(database, 1, layout);
  for (int level = 0; level <= 3; ++level) {
    const std::uint64_t size = samples_per_bin(level);
    for (std::size_t statistic = 0; statistic < run_.statistics.size(); ++statistic) {
      std::uint64_t bins = 0;
      table.visit({.statistic = static_cast<std::int64_t>(statistic),
                   .role = 1,
                   .first_chunk = 1,
                   .end_chunk = 2,
                   .begin = 0,
                   .end = samples / size * size},
                  level, [&](std::uint64_t first, std::size_t chunk, std::span<const float> values) {
                    ++bins;
                    const std::size_t site = layout.roles[1].sites[chunk * layout.roles[1].chunk_sites() + 3];
                    std::vector<float> covered;
                    for (std::uint64_t i = first; i < first + size; ++i) {
                      covered.push_back(figure(step_of(i), site, statistic));
                    }
                    EXPECT_TRUE(same(values[3], brute_force(run_.statistics[statistic].worse, covered)));
                  });
      EXPECT_EQ(bins, samples / size) << level;
    }
  }
  EXPECT_EQ(sql(store_, "SELECT max(level) FROM numerics"), "3");  // 8³ = 512 samples are there, 8⁴ are not
}

TEST_F(RecordedNumerics, AnyLevelCoversARangeWithoutGapsAndWithoutGoingBeyondIt) {
  Database database(store_, Database::Access::read, std::chrono::seconds(1));
  const SiteLayout layout = layout_of(run_);
  const NumericsTable table(database, 1, layout);
  std::mt19937 random(4);
  for (int round = 0; round < 60; ++round) {
    const int level = static_cast<int>(random() % 5);
    const std::size_t statistic = random() % run_.statistics.size();
    const std::uint64_t begin = random() % samples;
    const std::uint64_t end = begin + 1 + random() % (samples - begin);
    const WorseWay way = run_.statistics[statistic].worse;
    float worst = nan_value;
    table.visit(
        {.statistic = static_cast<std::int64_t>(statistic), .role = 2, .end_chunk = 1, .begin = begin, .end = end},
        level,
        [&](std::uint64_t, std::size_t, std::span<const float> values) { worst = worse_of(way, worst, values[11]); });
    std::vector<float> covered;
    for (std::uint64_t i = begin; i < end; ++i)
      covered.push_back(figure(step_of(i), layout.roles[2].sites[11], statistic));
    EXPECT_TRUE(same(worst, brute_force(way, covered))) << begin << " to " << end << " at level " << level;
  }
}

TEST(PlanColumns, ReadsNoMoreThanItMayAndNeverCutsABin) {
  std::mt19937 random(6);
  for (int round = 0; round < 2000; ++round) {
    const std::uint64_t first = random() % 5000;
    const std::uint64_t count = 1 + random() % (round % 2 == 0 ? 300 : 2000000);
    const std::size_t most = 1 + random() % 2000;
    const std::size_t bytes = 4 * (1 + random() % 5000);
    const std::size_t budget = std::size_t{1} << (10 + random() % 18);
    const ColumnPlan plan = plan_columns(first, count, most, bytes, budget);
    ASSERT_GE(plan.columns, 1U);
    ASSERT_LE(plan.columns, most);
    ASSERT_EQ(plan.samples_per_column % samples_per_bin(plan.level), 0U);
    ASSERT_EQ(plan.first_column, first / plan.samples_per_column);
    ASSERT_EQ(plan.first_column + plan.columns - 1, (first + count - 1) / plan.samples_per_column);
    const std::uint64_t bins = count / samples_per_bin(plan.level);
    ASSERT_TRUE(bins <= most || bins * bytes <= budget || plan.level == numerics_levels - 1);
    if (plan.level > 0) {  // the level below would have read too much
      ASSERT_GT(count / samples_per_bin(plan.level - 1) * bytes, budget);
    }
  }
}

TEST_F(RecordedNumerics, AnyViewIsTheWorstOfWhatItsCellsStandFor) {
  const StoreReader reader(store_);
  std::mt19937 random(3);
  for (int round = 0; round < 12; ++round) {
    const std::size_t statistic = random() % run_.statistics.size();
    NumericsQuery query{.statistic = run_.statistics[statistic].name, .role = run_.sites[random() % 3].role};
    query.from = random() % 1000;
    query.to = query.from + random() % 1500;
    query.columns = 1 + random() % 700;
    query.rows = 1 + random() % 300;
    const NumericsView view = reader.numerics("a", query);
    ASSERT_LE(view.rows.size(), query.rows);
    ASSERT_LE(view.steps.size(), query.columns);
    ASSERT_EQ(view.values.size(), view.rows.size() * view.steps.size());
    for (std::size_t column = 0; column < view.steps.size(); ++column) {
      const std::uint64_t end = column + 1 < view.steps.size() ? view.steps[column + 1] : view.last_step + 1;
      const std::size_t row = random() % view.rows.size();
      std::vector<float> covered;
      for (std::uint64_t step = view.steps[column]; step < end; ++step) {
        if (step % 3 != 1) continue;
        for (std::size_t i = 0; i < view.rows[row].count; ++i) {
          const std::size_t layer = view.rows[row].first + i;
          const std::size_t role = query.role == "x" ? 0 : query.role == "w" ? 1 : 2;
          covered.push_back(figure(step, layer * 3 + role, statistic));
        }
      }
      ASSERT_TRUE(same(view.values[row * view.steps.size() + column], brute_force(view.worse, covered)))
          << "column " << column << " of " << view.steps.size() << ", row " << row << " of " << view.rows.size();
    }
    if (!view.steps.empty()) {  // nothing of the span is left out
      EXPECT_LT(view.steps.front() - query.from, 3U);
      EXPECT_LT(std::min(query.to, step_of(samples - 1)) - view.last_step, 3U);
    }
  }
}

TEST_F(RecordedNumerics, AHistoryHasEveryStatisticOfItsSite) {
  const StoreReader reader(store_);
  for (const std::size_t points : {2000UL, 100UL, 1UL}) {
    const std::size_t site = 3 * 247 + 2;
    const SiteHistory history = reader.history("a", run_.sites[site].name, points);
    ASSERT_LE(history.step.size(), points);
    for (std::size_t statistic = 0; statistic < run_.statistics.size(); ++statistic) {
      EXPECT_EQ(history.statistics[statistic].first, run_.statistics[statistic].name);
      for (std::size_t point = 0; point < history.step.size(); ++point) {
        const std::uint64_t end = point + 1 < history.step.size() ? history.step[point + 1] : step_of(samples);
        std::vector<float> covered;
        for (std::uint64_t step = history.step[point]; step < end; step += 3) {
          covered.push_back(figure(step, site, statistic));
        }
        ASSERT_TRUE(
            same(history.statistics[statistic].second[point], brute_force(run_.statistics[statistic].worse, covered)));
      }
    }
  }
}

TEST_F(RecordedNumerics, SamplesThatWereRewoundLeaveNoTrace) {
  const std::string straight = contents();
  ASSERT_GT(straight.size(), 100000U);
  for (const std::uint64_t last : {3U, 70U, 513U, 598U}) {
    {
      RunRecorder recorder(store_, run_, step_of(last), collect(), quick());
      for (std::uint64_t i = last + 1; i < last + 80; ++i) {  // other figures, worse than all
        recorder.numerics(step_of(i), std::vector<float>(run_.sites.size() * run_.statistics.size(), 1e9F));
      }
      recorder.rewind(step_of(last));
      for (std::uint64_t i = last + 1; i < samples; ++i) {
        recorder.numerics(step_of(i), values_of(run_, step_of(i)));
        if (i % 64 == 0) {
          ASSERT_TRUE(recorder.flush());
        }
      }
      ASSERT_TRUE(recorder.flush());
      ASSERT_EQ(recorder.dropped(), 0U);
    }
    EXPECT_TRUE(straight == contents()) << "rewound to sample " << last;
  }
}

TEST_F(Numerics, WhatIsNeverMeasuredTakesNoRoom) {
  const RunDescription run = small_run("a");
  RunRecorder recorder(store_, run, 0, collect(), quick());
  for (std::uint64_t step = 1; step <= 16; ++step) {
    recorder.numerics(step, std::vector<float>(run.sites.size() * run.statistics.size(), nan_value));
  }
  ASSERT_TRUE(recorder.flush());
  EXPECT_EQ(sql(store_, "SELECT count(*) FROM numerics"), "0");
  const NumericsView view = StoreReader(store_).numerics("a", {.statistic = "amax", .role = "dy"});
  EXPECT_EQ(view.steps.size(), 16U);
  for (const float value : view.values) EXPECT_TRUE(std::isnan(value));
}

TEST_F(Numerics, ASampleThatDoesNotComeAfterTheLastIsLeftOut) {
  const RunDescription run = small_run("a");
  RunRecorder recorder(store_, run, 0, collect(), quick());
  for (const std::uint64_t step : {5U, 5U, 3U, 6U}) recorder.numerics(step, values_of(run, step));
  ASSERT_TRUE(recorder.flush());
  EXPECT_THAT(StoreReader(store_).numerics("a", {.statistic = "amax", .role = "x"}).steps, testing::ElementsAre(5, 6));
}

TEST(Histograms, CountsComeBackFromTheirBytes) {
  std::mt19937_64 random(5);
  for (int round = 0; round < 500; ++round) {
    BinadeCounts counts{};
    const std::size_t first = random() % 64;
    for (std::size_t i = first; i < 64 && i < first + random() % 64; ++i) counts[i] = random() >> (random() % 64);
    std::vector<std::byte> bytes;
    encode_counts(counts, bytes);
    std::span<const std::byte> rest(bytes);
    EXPECT_EQ(decode_counts(rest), counts);
    EXPECT_TRUE(rest.empty());
    for (std::size_t cut = 0; cut < bytes.size(); ++cut) {
      std::span<const std::byte> part = std::span<const std::byte>(bytes).first(cut);
      EXPECT_EQ(decode_counts(part), std::nullopt);
    }
  }
}

TEST(Histograms, BytesThatAreNoCountsAreRefused) {
  const std::byte beyond[] = {std::byte{60}, std::byte{5}, std::byte{1}, std::byte{1},
                              std::byte{1},  std::byte{1}, std::byte{1}};
  std::span<const std::byte> bytes(beyond);
  EXPECT_EQ(decode_counts(bytes), std::nullopt);
  std::vector<std::byte> endless(40, std::byte{0xFF});
  endless[0] = std::byte{0};
  endless[1] = std::byte{1};
  bytes = endless;
  EXPECT_EQ(decode_counts(bytes), std::nullopt);
}

TEST_F(Numerics, HistogramsAreKeptAlongTheWholeRunAndNeverMoreThan64) {
  const RunDescription run = small_run("a", 1);
  RunRecorder recorder(store_, run, 0, collect(), quick());
  const StoreReader reader(store_);
  for (std::uint64_t step = 1; step <= 700; ++step) {
    BinadeCounts counts{};
    counts[7] = step;
    recorder.numerics(step, values_of(run, step), std::vector<BinadeCounts>(run.sites.size(), counts));
    if (step % 23 != 0 && step != 700) continue;
    ASSERT_TRUE(recorder.flush());
    const SiteHistogram newest = reader.histogram("a", run.sites[1].name);
    ASSERT_EQ(newest.step, step);
    ASSERT_LE(newest.steps.size(), kept_histograms);
    ASSERT_GE(newest.steps.size(), std::min<std::uint64_t>(step, kept_histograms / 2 - 1));
    ASSERT_EQ(newest.steps.front(), 1U);
    const std::uint64_t stride = histogram_stride(step - 1);
    for (std::size_t i = 0; i + 1 < newest.steps.size(); ++i) {
      ASSERT_LE(newest.steps[i + 1] - newest.steps[i], stride);
      ASSERT_EQ(reader.histogram("a", run.sites[1].name, newest.steps[i]).counts[7], newest.steps[i]);
    }
  }
  const SiteHistogram near = reader.histogram("a", run.sites[0].name, 335);
  for (const std::uint64_t kept : near.steps) {
    EXPECT_LE(std::abs(static_cast<double>(near.step) - 335), std::abs(static_cast<double>(kept) - 335));
  }
}

}  // namespace
}  // namespace quaver
