#include "engine/energy.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
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

}  // namespace
}  // namespace quaver
