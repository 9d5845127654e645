#include "store/exports.h"

#include <bit>
#include <fstream>
#include <gmock/gmock.h>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>

#include "support/crc32c.h"

#include "store/store_fixture.h"

namespace quaver {
namespace {

using namespace test;
using testing::ElementsAre;
using testing::StartsWith;

std::vector<std::string> lines_of(const fs::path& path) {
  std::vector<std::string> lines;
  std::istringstream text(contents(path));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

class Exports : public StoreTest {
 protected:
  void SetUp() override {
    StoreTest::SetUp();
    run_.sites[1].name = "odd,\"name\"/w";
    RunRecorder recorder(store_, run_, 0, collect(), quick());
    for (std::uint64_t step = 1; step <= 5; ++step) {
      const MetricValue values[] = {{"loss", 1.0 / static_cast<double>(step)},
                                    {"gradient_norm", step == 3 ? std::nan("") : 2.0},
                                    {"time", 1700000000.5 + static_cast<double>(step)}};
      recorder.metrics(step, values);
      if (step % 2 == 0) recorder.numerics(step, values_of(run_, step));
    }
    const MetricValue validation[] = {{"validation_loss", 0.25}};
    recorder.metrics(4, validation);
    ASSERT_TRUE(recorder.flush());
  }
  RunDescription run_ = small_run("a");
};

TEST_F(Exports, JsonLinesHoldEveryValue) {
  const StoreReader reader(store_);
  const auto files = export_run(reader, "a", folder_ / "out", {});
  ASSERT_EQ(files.size(), 2U);
  const auto metrics = lines_of(folder_ / "out/a/metrics.jsonl");
  ASSERT_EQ(metrics.size(), 5U);
  const auto third = nlohmann::json::parse(metrics[2]);
  EXPECT_EQ(third["step"], 3);
  EXPECT_EQ(third["loss"].get<double>(), 1.0 / 3);
  EXPECT_TRUE(third["gradient_norm"].is_null());
  EXPECT_FALSE(third.contains("validation_loss"));
  EXPECT_EQ(nlohmann::json::parse(metrics[3])["validation_loss"], 0.25);

  const auto numerics = lines_of(folder_ / "out/a/numerics.jsonl");
  ASSERT_EQ(numerics.size(), 2 * run_.sites.size());
  for (std::size_t i = 0; i < numerics.size(); ++i) {
    const auto line = nlohmann::json::parse(numerics[i]);
    const std::uint64_t step = i < run_.sites.size() ? 2 : 4;
    const std::size_t site = i % run_.sites.size();
    EXPECT_EQ(line["step"], step);
    EXPECT_EQ(line["site"], run_.sites[site].name);
    for (std::size_t s = 0; s < run_.statistics.size(); ++s) {
      const float value = figure(step, site, s);
      ASSERT_EQ(line.contains(run_.statistics[s].name), !std::isnan(value));
      if (!std::isnan(value)) {
        EXPECT_EQ(line[run_.statistics[s].name].get<float>(), value);
      }
    }
  }
}

TEST_F(Exports, CsvHasARowAStepAndQuotesWhatNeedsIt) {
  export_run(StoreReader(store_), "a", folder_ / "out", {.format = ExportFormat::csv, .statistics = {"mean"}});
  const auto metrics = lines_of(folder_ / "out/a/metrics.csv");
  ASSERT_EQ(metrics.size(), 6U);
  EXPECT_EQ(metrics[0], "step,loss,gradient_norm,time,validation_loss");
  EXPECT_EQ(metrics[1], "1,1,2,1700000001.5,");
  EXPECT_EQ(metrics[3], "3,0.3333333333333333,,1700000003.5,");
  EXPECT_EQ(metrics[4], "4,0.25,2,1700000004.5,0.25");
  const auto numerics = lines_of(folder_ / "out/a/numerics.csv");
  EXPECT_EQ(numerics[0], "step,site,statistic,value");
  std::size_t expected = 1;
  for (const std::uint64_t step : {2U, 4U}) {
    for (std::size_t site = 0; site < run_.sites.size(); ++site) {
      const float value = figure(step, site, 2);
      if (std::isnan(value)) continue;
      const std::string name = site == 1 ? "\"odd,\"\"name\"\"/w\"" : run_.sites[site].name;
      EXPECT_EQ(numerics.at(expected++), fmt::format("{},{},mean,{}", step, name, value));
    }
  }
  EXPECT_EQ(numerics.size(), expected);
}

// TensorBoard's framing and messages, decoded by their definitions alone.
namespace decode {

std::uint32_t unmasked(std::uint32_t masked) {
  const std::uint32_t rotated = masked - 0xa282ead8U;
  return (rotated >> 17U) | (rotated << 15U);
}

std::uint64_t fixed(std::string_view bytes, std::size_t size) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < size; ++i) value |= std::uint64_t{static_cast<unsigned char>(bytes.at(i))} << (8 * i);
  return value;
}

std::vector<std::string> records(std::string_view bytes) {
  std::vector<std::string> found;
  while (!bytes.empty()) {
    const std::uint64_t length = fixed(bytes, 8);
    EXPECT_EQ(unmasked(static_cast<std::uint32_t>(fixed(bytes.substr(8), 4))), crc32c_by_bits(bytes.substr(0, 8)));
    const std::string_view data = bytes.substr(12, length);
    EXPECT_EQ(data.size(), length);
    EXPECT_EQ(unmasked(static_cast<std::uint32_t>(fixed(bytes.substr(12 + length), 4))), crc32c_by_bits(data));
    found.emplace_back(data);
    bytes = bytes.substr(16 + length);
  }
  return found;
}

struct Field {
  std::uint64_t number = 0;
  std::uint64_t value = 0;  // of varints and fixed fields
  std::string bytes;
};

std::uint64_t varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (unsigned shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(bytes.at(0));
    bytes.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7FU} << shift;
    if (byte < 0x80U) return value;
  }
}

std::vector<Field> fields(std::string_view message) {
  std::vector<Field> found;
  while (!message.empty()) {
    const std::uint64_t key = varint(message);
    Field field;
    field.number = key >> 3U;
    if (key % 8 == 0) {
      field.value = varint(message);
    } else if (key % 8 == 2) {
      const std::uint64_t length = varint(message);
      field.bytes = message.substr(0, length);
      message.remove_prefix(length);
    } else {
      const std::size_t size = key % 8 == 1 ? 8 : 4;
      EXPECT_TRUE(key % 8 == 1 || key % 8 == 5);
      field.value = fixed(message, size);
      message.remove_prefix(size);
    }
    found.push_back(std::move(field));
  }
  return found;
}

}  // namespace decode

TEST(Decode, TheTestsOwnChecksumIsTheStandards) {
  EXPECT_EQ(crc32c_by_bits("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c_by_bits(std::string(32, '\0')), 0x8A9136AAU);
}

struct Point {
  double time = 0;
  float value = 0;
};

TEST_F(Exports, TensorboardFilesDecodeToTheSameValues) {
  const auto files = export_run(StoreReader(store_), "a", folder_ / "out",
                                {.format = ExportFormat::tensorboard, .statistics = {"amax", "mean"}});
  ASSERT_EQ(files.size(), 1U);
  EXPECT_THAT(files[0].filename().string(), StartsWith("events.out.tfevents."));
  const auto records = decode::records(contents(files[0]));
  const auto head = decode::fields(records.at(0));
  EXPECT_EQ(head.at(0).number, 1U);
  EXPECT_EQ(head.at(1).number, 3U);
  EXPECT_EQ(head.at(1).bytes, "brain.Event:2");

  std::map<std::pair<std::string, std::uint64_t>, Point> points;
  for (std::size_t i = 1; i < records.size(); ++i) {
    const auto event = decode::fields(records[i]);
    ASSERT_EQ(event.size(), 3U);
    ASSERT_EQ(event[2].number, 5U);
    for (const auto& value : decode::fields(event[2].bytes)) {
      const auto scalar = decode::fields(value.bytes);
      points[{scalar.at(0).bytes, event[1].value}] = {
          std::bit_cast<double>(event[0].value), std::bit_cast<float>(static_cast<std::uint32_t>(scalar.at(1).value))};
    }
  }
  EXPECT_EQ(points.at({"loss", 3}).value, 1.0F / 3);
  EXPECT_EQ(points.at({"loss", 3}).time, 1700000003.5);
  EXPECT_TRUE(std::isnan(points.at({"gradient_norm", 3}).value));
  EXPECT_FALSE(points.contains({"time", 3}));
  std::size_t numerics = 0;
  for (const std::uint64_t step : {2U, 4U}) {
    for (std::size_t site = 0; site < run_.sites.size(); ++site) {
      for (const std::size_t statistic : {0UL, 2UL}) {
        const float value = figure(step, site, statistic);
        if (std::isnan(value)) continue;
        ++numerics;
        const auto& point =
            points.at({"numerics/" + run_.statistics[statistic].name + "/" + run_.sites[site].name, step});
        EXPECT_EQ(point.value, value);
        EXPECT_EQ(point.time, 1700000000.5 + static_cast<double>(step));
      }
    }
  }
  EXPECT_EQ(points.size(), 5 * 2 + 1 + numerics);
}

TEST_F(Exports, ExportingAgainReplacesAndAllRunsAreMeantByNone) {
  { const RunRecorder other(store_, small_run("b"), 0, collect(), quick()); }
  const StoreReader reader(store_);
  const auto first = export_runs(reader, {}, folder_ / "out", {.format = ExportFormat::tensorboard, .statistics = {}});
  const auto second = export_runs(reader, {}, folder_ / "out", {.format = ExportFormat::tensorboard, .statistics = {}});
  EXPECT_EQ(first.size(), 2U);
  EXPECT_EQ(first, second);
}

TEST_F(Exports, AFolderHasTheNameOfItsRunWhereThatIsANameOfOne) {
  const auto record = [&](const std::string& id, const std::string& name) {
    RunDescription run = small_run(id);
    run.name = name;
    const RunRecorder recorder(store_, run, 0, collect(), quick());
  };
  record("id1", "first-1.0_b+c=d");
  record("id2", "twice");
  record("id3", "twice");
  record("id4", "id5");  // another run's id
  record("id5", "last");
  const std::vector<std::string> hostile{"..",
                                         ".",
                                         "",
                                         "../../up",
                                         "/tmp/absolute",
                                         "a/b",
                                         "a\\b",
                                         ".hidden",
                                         "-rf",
                                         "a\nb",
                                         std::string("a\0b", 3),
                                         "h\xC3\xA9",
                                         "a b",
                                         "$(true)",
                                         std::string(101, 'a')};
  for (std::size_t i = 0; i < hostile.size(); ++i) record("hostile" + std::to_string(i), hostile[i]);
  const StoreReader reader(store_);
  const auto folder_of = [&](const std::string& id) {
    const auto files = export_run(reader, id, folder_ / "out", {.format = ExportFormat::csv, .statistics = {}});
    for (const fs::path& file : files) EXPECT_TRUE(fs::is_regular_file(file)) << file;
    return files.at(0).parent_path();
  };
  EXPECT_EQ(folder_of("id1"), folder_ / "out/first-1.0_b+c=d");
  EXPECT_EQ(folder_of("id2"), folder_ / "out/id2");
  EXPECT_EQ(folder_of("id3"), folder_ / "out/id3");
  EXPECT_EQ(folder_of("id4"), folder_ / "out/id4");
  EXPECT_EQ(folder_of("id5"), folder_ / "out/last");
  for (std::size_t i = 0; i < hostile.size(); ++i) {
    const std::string id = "hostile" + std::to_string(i);
    EXPECT_EQ(folder_of(id), folder_ / "out" / id) << hostile[i];
  }
}

TEST_F(Exports, UnknownRunsAndStatisticsAreErrors) {
  const StoreReader reader(store_);
  EXPECT_THROW(export_run(reader, "../a", folder_ / "out", {}), Error);
  EXPECT_THROW(export_run(reader, "none", folder_ / "out", {}), NoSuchRecord);
  EXPECT_THROW(export_run(reader, "a", folder_ / "out", {.format = ExportFormat::csv, .statistics = {"none"}}), Error);
}

}  // namespace
}  // namespace quaver
