#include "engine/nvml.h"

#include <cstring>
#include <gtest/gtest.h>

namespace quaver {
namespace {

constexpr int not_supported = 3;

// A driver's library of one GPU, as its documentation describes the functions.
struct FakeDriver {
  int started = 0;
  int looks = 0;
  std::string asked_bus;
  bool has_energy = true;
};
FakeDriver driver;
int the_device = 0;

nvml::Functions fake_functions() {
  nvml::Functions functions;
  functions.init = [] {
    ++driver.started;
    return 0;
  };
  functions.shutdown = [] {
    --driver.started;
    return 0;
  };
  functions.driver_version = [](char* text, unsigned int size) {
    std::strncpy(text, "580.1", size);
    return 0;
  };
  functions.device_count = [](unsigned int* count) {
    *count = 1;
    return 0;
  };
  functions.device_by_index = [](unsigned int index, nvml::Device* device) {
    *device = &the_device;
    return index == 0 ? 0 : not_supported;
  };
  functions.device_by_bus = [](const char* bus, nvml::Device* device) {
    driver.asked_bus = bus;
    *device = &the_device;
    return driver.asked_bus == "0000:65:00.0" ? 0 : not_supported;
  };
  functions.device_name = [](nvml::Device, char* text, unsigned int size) {
    std::strncpy(text, "Fake 9000", size);
    return 0;
  };
  functions.power = [](nvml::Device, unsigned int* milliwatts) {
    ++driver.looks;
    *milliwatts = 412500;
    return 0;
  };
  functions.power_limit = [](nvml::Device, unsigned int* milliwatts) {
    *milliwatts = 700000;
    return 0;
  };
  functions.clock = [](nvml::Device, int type, unsigned int* mhz) {
    *mhz = type == 1 ? 1755 : 1;  // 1 asks for the multiprocessors' clock
    return 0;
  };
  functions.temperature = [](nvml::Device, int sensor, unsigned int* celsius) {
    *celsius = 61;
    return sensor == 0 ? 0 : not_supported;
  };
  functions.memory = [](nvml::Device, nvml::Memory* memory) {
    *memory = {1000, 300, 700};
    return 0;
  };
  functions.energy = [](nvml::Device, unsigned long long* millijoules) {
    *millijoules = 5'000'000'000'000ULL;  // more than 32 bits hold
    return driver.has_energy ? 0 : not_supported;
  };
  functions.utilization = [](nvml::Device, nvml::Utilization* rates) {
    *rates = {98, 40};
    return 0;
  };
  return functions;
}

class GpuMeterTest : public testing::Test {
 protected:
  void SetUp() override { driver = {}; }
};

TEST_F(GpuMeterTest, ReadsInUnitsOfPeople) {
  GpuMeter meter(fake_functions(), "");
  const auto reading = meter.read();
  ASSERT_TRUE(reading);
  EXPECT_DOUBLE_EQ(reading->watts.value(), 412.5);
  EXPECT_EQ(reading->sm_mhz, 1755);
  EXPECT_EQ(reading->celsius, 61);
  EXPECT_EQ(reading->memory_used, 700U);
  EXPECT_DOUBLE_EQ(reading->joules.value(), 5e9);
  EXPECT_EQ(reading->busy_percent, 98);
  EXPECT_EQ(meter.driver_version(), "580.1");
  const auto card = meter.card();
  ASSERT_TRUE(card);
  EXPECT_EQ(card->name, "Fake 9000");
  EXPECT_EQ(card->memory_free, 300U);
  EXPECT_DOUBLE_EQ(card->watts_limit.value(), 700.0);
}

TEST_F(GpuMeterTest, LooksAgainOnlyAfterAWhile) {
  GpuMeter meter(fake_functions(), "");
  for (int i = 0; i < 1000; ++i) meter.read();
  EXPECT_LE(driver.looks, 3);  // one, unless the machine is very slow
  EXPECT_GE(driver.looks, 1);
}

TEST_F(GpuMeterTest, LeavesOutWhatTheGpuDoesNotReport) {
  driver.has_energy = false;
  GpuMeter meter(fake_functions(), "");
  const auto reading = meter.read();
  ASSERT_TRUE(reading);
  EXPECT_FALSE(reading->joules);
  EXPECT_TRUE(reading->watts);
}

TEST_F(GpuMeterTest, FindsTheGpuByItsBus) {
  EXPECT_TRUE(GpuMeter(fake_functions(), "0000:65:00.0").found());
  EXPECT_EQ(driver.asked_bus, "0000:65:00.0");
  GpuMeter other(fake_functions(), "0000:01:00.0");
  EXPECT_FALSE(other.found());
  EXPECT_FALSE(other.read());
  EXPECT_FALSE(other.card());
}

TEST_F(GpuMeterTest, StopsWhatItStarted) {
  { GpuMeter meter(fake_functions(), ""); }
  EXPECT_EQ(driver.started, 0);
}

TEST_F(GpuMeterTest, SaysNothingWithoutALibrary) {
  GpuMeter meter(std::nullopt, "");
  EXPECT_FALSE(meter.found());
  EXPECT_FALSE(meter.read());
  EXPECT_EQ(meter.driver_version(), "");
}

// Whatever this machine has: nothing, or something plausible.
TEST_F(GpuMeterTest, IsSafeOnAnyMachine) {
  GpuMeter meter;
  const auto reading = meter.read();
  EXPECT_EQ(reading.has_value(), meter.found());
  EXPECT_LT(reading ? reading->celsius.value_or(0) : 0, 150);
}

}  // namespace
}  // namespace quaver
