#include "study/doctor.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/variable.h"

#include "precision/recipe.h"

namespace quaver {
namespace {

using test::Variable;
using testing::HasSubstr;

constexpr const char* no_module = "/nowhere/quaver_cuda.so";

TEST(Doctor, FindsAMachineWithoutAGpuHealthy) {
  const Variable module("QUAVER_CUDA_MODULE", no_module);
  const DoctorReport report = examine();
  EXPECT_TRUE(report.healthy());
  EXPECT_EQ(report.cuda.state, CudaState::absent);
  EXPECT_GT(report.cpu.cores, 0);
  EXPECT_GT(report.cpu.memory, report.cpu.memory_available);
  ASSERT_EQ(report.checks.size(), 1U);
  EXPECT_TRUE(report.checks[0].good());
  EXPECT_GT(report.checks[0].tflops, 0);
}

TEST(Doctor, SaysInWordsWhyThereIsNoGpuAndWhatToDo) {
  const Variable module("QUAVER_CUDA_MODULE", no_module);
  const std::string text = doctor_text(examine());
  EXPECT_THAT(text, HasSubstr("is not beside the program"));
  EXPECT_THAT(text, HasSubstr("→ build on a machine that has nvcc"));
  for (const RecipeInfo& recipe : recipes()) EXPECT_THAT(text, HasSubstr("  " + std::string(recipe.name) + " "));
}

TEST(Doctor, ListsEveryRecipeOnBothDevicesInJson) {
  const Variable module("QUAVER_CUDA_MODULE", no_module);
  const auto json = nlohmann::json::parse(doctor_json(examine()));
  EXPECT_TRUE(json.at("healthy").get<bool>());
  ASSERT_EQ(json.at("recipes").size(), recipes().size());
  for (std::size_t i = 0; i < recipes().size(); ++i) {
    const auto& row = json.at("recipes").at(i);
    EXPECT_EQ(row.at("recipe").get<std::string>(), recipes()[i].name);
    EXPECT_EQ(row.at("cpu").at("level"), recipes()[i].name == "fp32" ? "native" : "emulated");
    EXPECT_EQ(row.at("gpu").at("level"), "unavailable");
    EXPECT_THAT(row.at("gpu").at("how").get<std::string>(), HasSubstr("quaver_cuda.so"));
  }
  EXPECT_EQ(json.at("gpu").at("state"), "no module");
  EXPECT_FALSE(json.at("gpu").at("remedy").get<std::string>().empty());
}

// A file that is no library: nothing is wrong with a machine that has no driver, and all is where there is one.
TEST(Doctor, TellsAMissingDriverFromABrokenModule) {
  const std::filesystem::path file = std::filesystem::temp_directory_path() / "not-a-module.so";
  std::ofstream(file) << "text";
  const Variable module("QUAVER_CUDA_MODULE", file.string());
  const DoctorReport report = examine();
  std::filesystem::remove(file);
  EXPECT_EQ(report.cuda.module, file);
  if (report.cuda.state == CudaState::no_driver) {
    EXPECT_TRUE(report.healthy());
    EXPECT_THAT(report.cuda.problem, HasSubstr("no NVIDIA driver"));
  } else {
    EXPECT_EQ(report.cuda.state, CudaState::unusable);
    EXPECT_FALSE(report.healthy());
  }
}

TEST(Doctor, TriesWhetherTheCacheCanBeWritten) {
  const Variable module("QUAVER_CUDA_MODULE", no_module);
  const std::filesystem::path folder = std::filesystem::temp_directory_path() / "quaver-doctor" / "cache";
  std::filesystem::remove_all(folder.parent_path());
  {
    const Variable cache("QUAVER_CACHE_DIR", folder.string());
    EXPECT_EQ(examine().cache.problem, "");
    EXPECT_FALSE(std::filesystem::exists(folder.parent_path()));  // left as it was
  }
  const Variable cache("QUAVER_CACHE_DIR", "/proc/quaver");
  const DoctorReport report = examine();
  EXPECT_NE(report.cache.problem, "");
  EXPECT_TRUE(report.healthy());  // slower, not broken
  EXPECT_THAT(doctor_text(report), HasSubstr("set QUAVER_CACHE_DIR"));
}

TEST(ProductCheckTest, IsExactToRoundingAndSeesAnyError) {
  const auto engine = make_cpu_engine(2);
  EXPECT_TRUE(check_gemm(*engine, 96, 96 * 0x1p-24).good());
  const GemmCheck strict = check_gemm(*engine, 96, 0);
  EXPECT_GT(strict.error, 0);  // FP32 sums are not double's
  EXPECT_FALSE(strict.good());
}

TEST(ProductCheckTest, ComparesTwoEngines) {
  const auto engine = make_cpu_engine(2);
  const auto reference = make_cpu_engine(1);
  const GemmCheck check = check_gemm(*engine, *reference, 96, 96 * 0x1p-24);
  EXPECT_TRUE(check.good());
  EXPECT_EQ(check.different_values, 0);
}

}  // namespace
}  // namespace quaver
