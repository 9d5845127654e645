#include "engine/energy.h"

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <thread>
#include <unistd.h>

namespace quaver {
namespace {

class EnergyTest : public testing::Test {
 protected:
  void SetUp() override { std::filesystem::create_directories(folder_); }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  void counter(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories(folder_ / name);
    std::ofstream(folder_ / name / "energy_uj") << text;
  }
  std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("quaver-energy-" + std::to_string(::getpid()));
};

TEST_F(EnergyTest, AddsTheProcessorsAndNotTheirParts) {
  counter("intel-rapl:0", "1500000\n");
  counter("intel-rapl:1", "500000\n");
  counter("intel-rapl:0:0", "900000\n");
  EnergyMeter meter(HardwareKind::cpu, folder_);
  EXPECT_EQ(meter.source(), "RAPL");
  EXPECT_DOUBLE_EQ(meter.joules().value(), 2.0);
  counter("intel-rapl:1", "750000\n");
  EXPECT_DOUBLE_EQ(meter.joules().value(), 2.25);
}

TEST_F(EnergyTest, SaysWhereThereIsNone) {
  counter("intel-rapl:0", "no number");
  EnergyMeter meter(HardwareKind::cpu, folder_);
  EXPECT_TRUE(meter.source().starts_with("not available"));
  EXPECT_FALSE(meter.joules().has_value());
  EXPECT_FALSE(EnergyMeter(HardwareKind::cpu, folder_ / "nowhere").joules().has_value());
}

// A tenth of a second of this counter are 10 J, but two readings 0.25 s apart may differ by 20 or by 30.
TEST_F(EnergyTest, PowerIsThatBetweenMovementsOfTheCounter) {
  using Clock = std::chrono::steady_clock;
  counter("intel-rapl:0", "0");
  EnergyMeter meter(HardwareKind::cpu, folder_);
  std::atomic<bool> ended = false;
  const auto start = Clock::now();
  std::thread hundred_watts([&] {
    while (!ended) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      const std::filesystem::path next = folder_ / "next";
      std::ofstream(next) << static_cast<long long>(1e8 * seconds);
      std::filesystem::rename(next, folder_ / "intel-rapl:0" / "energy_uj");
    }
  });
  PowerWatch watch(meter);
  std::this_thread::sleep_for(std::chrono::milliseconds(850));
  const std::optional<double> watts = watch.watts();
  ended = true;
  hundred_watts.join();
  ASSERT_TRUE(watts.has_value());
  EXPECT_NEAR(*watts, 100, 10);
}

TEST_F(EnergyTest, NoPowerIsToldOfACounterThatStandsStill) {
  counter("intel-rapl:0", "1500000");
  EnergyMeter meter(HardwareKind::cpu, folder_);
  EXPECT_FALSE(PowerWatch(meter).watts().has_value());
  EnergyMeter none(HardwareKind::cpu, folder_ / "nowhere");
  EXPECT_FALSE(PowerWatch(none).watts().has_value());
}

}  // namespace
}  // namespace quaver
