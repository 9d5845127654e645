// Exported files, character by character, and TensorBoard's by their fields.
#include <bit>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <gmock/gmock.h>

#include "store/exports.h"
#include "store/store_fixture.h"
#include "store/tensorboard.h"

namespace quaver::test {
namespace {

using testing::ElementsAre;

class ExportExact : public StoreTest {
 protected:
  std::string text_of(const fs::path& path) const { return contents(folder_ / "out" / path); }
  std::vector<fs::path> write(const std::string& id, ExportFormat format,
                              std::vector<std::string> statistics = {}) const {
    return export_run(StoreReader(store_), id, folder_ / "out",
                      {.format = format, .statistics = std::move(statistics)});
  }
  // Two sites, three statistics, two samples; metrics at three steps.
  void record(const std::string& id) {
    RunDescription run = small_run(id, 1);
    run.sites.resize(2);
    RunRecorder recorder(store_, run, 0, collect(), quick());
    const double infinity = std::numeric_limits<double>::infinity();
    const MetricValue first[] = {{"loss", 0.1}, {"a,b", -infinity}, {"time", 1700000000.5}};
    recorder.metrics(1, first);
    const MetricValue second[] = {{"loss", std::nan("")}};
    recorder.metrics(2, second);
    const MetricValue third[] = {{"a,b", 3}};
    recorder.metrics(10, third);
    const float beyond = std::numeric_limits<float>::infinity();
    recorder.numerics(2, std::vector<float>{0.1F, 2, nan_value, beyond, nan_value, -3});
    recorder.numerics(4, std::vector<float>{1, 2, 3, 4, 5, 6});
    ASSERT_TRUE(recorder.flush());
  }
};

TEST_F(ExportExact, JsonLines) {
  record("a");
  EXPECT_THAT(write("a", ExportFormat::jsonl),
              ElementsAre(folder_ / "out/a/metrics.jsonl", folder_ / "out/a/numerics.jsonl"));
  EXPECT_EQ(text_of("a/metrics.jsonl"),
            "{\"step\":1,\"loss\":0.1,\"a,b\":null,\"time\":1700000000.5}\n"
            "{\"step\":2,\"loss\":null}\n"
            "{\"step\":10,\"a,b\":3.0}\n");
  EXPECT_EQ(text_of("a/numerics.jsonl"),
            "{\"step\":2,\"site\":\"blocks.0.up/x\",\"amax\":0.1,\"sqnr_db\":2.0}\n"
            "{\"step\":2,\"site\":\"blocks.0.up/w\",\"amax\":null,\"mean\":-3.0}\n"
            "{\"step\":4,\"site\":\"blocks.0.up/x\",\"amax\":1.0,\"sqnr_db\":2.0,\"mean\":3.0}\n"
            "{\"step\":4,\"site\":\"blocks.0.up/w\",\"amax\":4.0,\"sqnr_db\":5.0,\"mean\":6.0}\n");
  write("a", ExportFormat::jsonl, {"mean", "amax"});
  EXPECT_EQ(text_of("a/numerics.jsonl"),
            "{\"step\":2,\"site\":\"blocks.0.up/x\",\"amax\":0.1}\n"
            "{\"step\":2,\"site\":\"blocks.0.up/w\",\"mean\":-3.0,\"amax\":null}\n"
            "{\"step\":4,\"site\":\"blocks.0.up/x\",\"mean\":3.0,\"amax\":1.0}\n"
            "{\"step\":4,\"site\":\"blocks.0.up/w\",\"mean\":6.0,\"amax\":4.0}\n");
}

TEST_F(ExportExact, Csv) {
  record("a");
  EXPECT_THAT(write("a", ExportFormat::csv),
              ElementsAre(folder_ / "out/a/metrics.csv", folder_ / "out/a/numerics.csv"));
  EXPECT_EQ(text_of("a/metrics.csv"),
            "step,loss,\"a,b\",time\n"
            "1,0.1,-inf,1700000000.5\n"
            "2,,,\n"
            "10,,3,\n");
  EXPECT_EQ(text_of("a/numerics.csv"),
            "step,site,statistic,value\n"
            "2,blocks.0.up/x,amax,0.1\n"
            "2,blocks.0.up/x,sqnr_db,2\n"
            "2,blocks.0.up/w,amax,inf\n"
            "2,blocks.0.up/w,mean,-3\n"
            "4,blocks.0.up/x,amax,1\n"
            "4,blocks.0.up/x,sqnr_db,2\n"
            "4,blocks.0.up/x,mean,3\n"
            "4,blocks.0.up/w,amax,4\n"
            "4,blocks.0.up/w,sqnr_db,5\n"
            "4,blocks.0.up/w,mean,6\n");
}

TEST_F(ExportExact, ARunWithoutRecordsHasEmptyFiles) {
  { const RunRecorder recorder(store_, small_run("a"), 0, collect(), quick()); }
  write("a", ExportFormat::jsonl);
  EXPECT_EQ(text_of("a/metrics.jsonl"), "");
  EXPECT_EQ(text_of("a/numerics.jsonl"), "");
  write("a", ExportFormat::csv);
  EXPECT_EQ(text_of("a/metrics.csv"), "step\n");
  EXPECT_EQ(text_of("a/numerics.csv"), "step,site,statistic,value\n");
}

TEST_F(ExportExact, IdsHaveUpToSixtyFourCharacters) {
  const std::string longest = std::string(60, 'a') + "Z9_-";
  record(longest);
  EXPECT_EQ(write(longest, ExportFormat::csv).size(), 2U);
  for (const std::string& id :
       {longest + "a", std::string(), std::string("a.b"), std::string("a/b"), std::string("ä")}) {
    try {
      write(id, ExportFormat::csv);
      ADD_FAILURE() << id;
    } catch (const NoSuchRecord&) {
      ADD_FAILURE() << id << " is no id";
    } catch (const Error&) {
      EXPECT_FALSE(fs::exists(folder_ / "out" / "a.b"));
    }
  }
}

TEST_F(ExportExact, SeveralRunsComeInTheOrderNamed) {
  for (const char* id : {"a", "b", "c"}) record(id);
  const StoreReader reader(store_);
  const std::string named[] = {"c", "a"};
  const auto files = export_runs(reader, named, folder_ / "out", {.format = ExportFormat::csv, .statistics = {}});
  EXPECT_THAT(files, ElementsAre(folder_ / "out/c/metrics.csv", folder_ / "out/c/numerics.csv",
                                 folder_ / "out/a/metrics.csv", folder_ / "out/a/numerics.csv"));
  EXPECT_FALSE(fs::exists(folder_ / "out/b"));
}

// Records of an event file: length, checksum, message, checksum.
std::vector<std::string> messages_of(const std::string& bytes) {
  std::vector<std::string> messages;
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    messages.push_back(bytes.substr(at + 12, length));
    at += 16 + length;
  }
  return messages;
}

double time_of(const std::string& message) {
  EXPECT_EQ(message.at(0), '\x09') << "field 1, eight bytes";
  double time = 0;
  std::memcpy(&time, message.data() + 1, sizeof time);
  return time;
}

TEST_F(ExportExact, TensorboardTimesAreTheStepsOwnOrTheStart) {
  record("a");
  sql(store_, "UPDATE runs SET started=1234.75, heartbeat=5678.5");
  const auto files = write("a", ExportFormat::tensorboard);
  EXPECT_THAT(files, ElementsAre(folder_ / "out/a/events.out.tfevents.1234.quaver.0.0"));
  const auto messages = messages_of(text_of("a/events.out.tfevents.1234.quaver.0.0"));
  ASSERT_EQ(messages.size(), 4U) << "a head and three steps; no numerics unless they are chosen";
  EXPECT_EQ(time_of(messages[0]), 1234.75);
  EXPECT_EQ(time_of(messages[1]), 1700000000.5);
  EXPECT_EQ(time_of(messages[2]), 1234.75);
  EXPECT_EQ(time_of(messages[3]), 1234.75);
  write("a", ExportFormat::tensorboard, {"amax"});
  const auto chosen = messages_of(text_of("a/events.out.tfevents.1234.quaver.0.0"));
  ASSERT_EQ(chosen.size(), 6U);
  EXPECT_EQ(time_of(chosen[4]), 1234.75);
}

std::string events_written(std::uint64_t step, const std::vector<TensorboardScalar>& scalars) {
  std::string bytes;
  TensorboardEvents events(
      [&](std::span<const std::byte> part) { bytes.append(reinterpret_cast<const char*>(part.data()), part.size()); },
      0);
  events.write(1, step, scalars);
  return bytes;
}

// Step 300 is the varint AC 02; the value 1.5 is 00 00 C0 3F.
TEST(TensorboardBytes, AnEventIsWrittenFieldByField) {
  const auto messages = messages_of(events_written(300, {{"ab", 1.5F}}));
  ASSERT_EQ(messages.size(), 2U);
  using namespace std::string_literals;
  const std::string zero(8, '\0');
  EXPECT_EQ(messages[0], "\x09"s + zero + "\x1a\x0d" + "brain.Event:2");
  EXPECT_EQ(messages[1],
            "\x09\0\0\0\0\0\0\xf0\x3f\x10\xac\x02\x2a\x0b\x0a\x09\x0a\x02"s + "ab" + "\x15\x00\x00\xc0\x3f"s);
}

TEST(TensorboardBytes, AThousandScalarsShareAnEvent) {
  const auto messages_with = [](std::size_t count) {
    return messages_of(events_written(1, std::vector<TensorboardScalar>(count, {"a", 1}))).size() - 1;
  };
  EXPECT_EQ(messages_with(0), 0U);
  EXPECT_EQ(messages_with(1), 1U);
  EXPECT_EQ(messages_with(1024), 1U);
  EXPECT_EQ(messages_with(1025), 2U);
}

}  // namespace
}  // namespace quaver::test
