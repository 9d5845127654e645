// What the doctor says of findings that are made up: every number in its place and unit, as text and as JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "study/doctor.h"

namespace quaver {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

DoctorReport made_up_findings() {
  DoctorReport report;
  report.version = "1.2.3";
  report.compiler = "a compiler";
  report.cpu = {"a processor", 6, {"avx", "fma"}, "Zen", Size{16} << 30, Size{5} << 30};
  report.driver = "580.1";
  report.cuda.state = CudaState::ready;
  report.cuda.module = "/lib/quaver_cuda.so";
  report.cuda.machine.driver = "13.0";
  report.cuda.machine.runtime = "12.9";
  report.cuda.machine.cublaslt = "12.9.1";
  report.cuda.machine.cudnn = "9.19.0";
  report.cuda.machine.devices = {{"Hopper", 90, 132, std::size_t{80} << 30U, "0000:65:00.0"},
                                 {"Ada", 89, 58, std::size_t{24} << 30U, "0000:66:00.0"}};
  report.gpu_engine = "CUDA";
  report.reading = GpuReading{.watts = 312.4,
                              .sm_mhz = 1755,
                              .celsius = 48,
                              .memory_used = std::uint64_t{3} << 29U,
                              .joules = 99,
                              .busy_percent = 7};
  report.cache = {"/cache", ""};
  report.recipes = {{"fp8-row", "rows", {SupportLevel::emulated, "through FP32"}, {SupportLevel::native, "cuBLASLt"}},
                    {"mxfp4", "blocks", {SupportLevel::native, "here"}, {SupportLevel::unavailable, "not there"}}};
  report.checks = {{.engine = "CPU",
                    .against = "double precision",
                    .error = 3e-6,
                    .bound = 4e-6,
                    .extent = 512,
                    .milliseconds = 1.5,
                    .tflops = 0.179},
                   {.engine = "CUDA",
                    .against = "CPU",
                    .error = 5e-4,
                    .bound = 4e-4,
                    .different_values = 2,
                    .extent = 4096,
                    .milliseconds = 0.25,
                    .tflops = 550}};
  return report;
}

TEST(DoctorText, HasEveryNumberInItsUnit) {
  const std::string text = doctor_text(made_up_findings());
  for (const char* part :
       {"quaver 1.2.3, a compiler\n",
        "  model         a processor\n",
        "  cores         6\n",
        "  instructions  avx fma\n",
        "  OpenBLAS      Zen kernels\n",
        "  memory        16.0 GiB, 5.0 GiB available\n",
        "  device        Hopper, sm_90, 132 multiprocessors, 80.0 GiB\n",
        "  device        Ada, sm_89, 58 multiprocessors, 24.0 GiB\n",
        "  now           312 W, 1755 MHz, 48 °C, 1.5 GiB used, 7 % busy\n",
        "  driver        580.1\n",
        "  module        /lib/quaver_cuda.so\n",
        "  state         ready\n",
        "  CUDA          12.9, the driver supports 13.0\n",
        "  cuBLASLt      12.9.1\n",
        "  cuDNN         9.19.0\n",
        "  folder        /cache, writable\n",
        "  fp8-row       cpu   emulated     through FP32\n                gpu   native       cuBLASLt\n",
        "  mxfp4         cpu   native       here\n                gpu   unavailable  not there\n",
        "  passed        CPU: error 3.0e-06 of the sum against double precision (at most 4.0e-06); 1.500 ms for 512³, "
        "0.179 TFLOP/s\n",
        "  WRONG         CUDA: error 5.0e-04 of the sum against CPU (at most 4.0e-04); 0.250 ms for 4096³, 550 "
        "TFLOP/s\n",
        "\nall checks passed\n"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("broken")));
  EXPECT_THAT(text, Not(HasSubstr("missing")));
}

TEST(DoctorText, SaysWhatIsBrokenAndWhatIsOnlyMissing) {
  DoctorReport report = made_up_findings();
  report.problems = {{"a product is wrong", "try again"}};
  report.advice = {{"no cuDNN", "install it"}};
  report.cache.problem = "read-only";
  report.checks = {{.engine = "CUDA", .failure = "out of order"}};
  const std::string text = doctor_text(report);
  EXPECT_THAT(text, HasSubstr("\noptional, not found\n  no cuDNN\n    → install it\n"));
  EXPECT_THAT(text, HasSubstr("\nbroken\n  a product is wrong\n    → try again\n"));
  EXPECT_THAT(text, HasSubstr("  folder        /cache: read-only\n"));
  EXPECT_THAT(text, HasSubstr("  failed        CUDA: out of order\n"));
  EXPECT_THAT(text, Not(HasSubstr("all checks passed")));
}

TEST(DoctorText, OfAMachineWithoutAGpuNamesWhatLacks) {
  DoctorReport report = made_up_findings();
  report.cuda = {};
  report.cuda.problem = "no module here";
  report.driver.clear();
  report.gpu_engine.clear();
  report.reading.emplace().celsius = 40;
  for (RecipeSupport& recipe : report.recipes) recipe.gpu = {SupportLevel::unavailable, "nothing to run on"};
  std::string text = doctor_text(report);
  for (const char* part :
       {"  device        none that can be used\n", "  now           40 °C\n", "  driver        none\n",
        "  module        quaver_cuda.so not found\n", "  state         no module: no module here\n",
        "  all           gpu   unavailable  nothing to run on\n"}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_THAT(text, Not(HasSubstr("cuBLASLt")));
  report.card.emplace().name = "An old card";
  EXPECT_THAT(doctor_text(report), HasSubstr("  device        An old card, which CUDA cannot use here\n"));
  report.cuda.machine.runtime = "12.9";
  report.cuda.machine.cudnn_problem = "not installed";
  EXPECT_THAT(doctor_text(report), HasSubstr("  cuDNN         none: not installed\n"));
}

TEST(DoctorText, NamesEveryState) {
  const auto told = [](CudaState state) {
    DoctorReport report = made_up_findings();
    report.cuda.state = state;
    return nlohmann::json::parse(doctor_json(report)).at("gpu").at("state").get<std::string>();
  };
  EXPECT_EQ(told(CudaState::absent), "no module");
  EXPECT_EQ(told(CudaState::no_driver), "no driver");
  EXPECT_EQ(told(CudaState::unusable), "unusable");
  EXPECT_EQ(told(CudaState::no_gpu), "no GPU");
  EXPECT_EQ(told(CudaState::ready), "ready");
}

TEST(DoctorJson, HasEveryFigureOnce) {
  DoctorReport report = made_up_findings();
  report.problems = {{"a product is wrong", "try again"}};
  report.advice = {{"no cuDNN", "install it"}};
  report.cuda.problem = "a problem";
  report.cuda.remedy = "a remedy";
  report.cache.problem = "read-only";
  const auto want = nlohmann::json::parse(R"({
    "quaver": "1.2.3", "compiler": "a compiler", "healthy": false,
    "processor": {"model": "a processor", "cores": 6, "instructions": ["avx", "fma"], "openblas": "Zen",
                  "memory_bytes": 17179869184, "memory_available_bytes": 5368709120},
    "gpu": {"state": "ready", "problem": "a problem", "remedy": "a remedy", "driver": "580.1",
            "module": "/lib/quaver_cuda.so", "cuda": "12.9", "cuda_of_driver": "13.0", "cublaslt": "12.9.1",
            "cudnn": "9.19.0", "engine": "CUDA",
            "devices": [{"name": "Hopper", "architecture": 90, "multiprocessors": 132, "memory_bytes": 85899345920,
                         "pci_bus_id": "0000:65:00.0"},
                        {"name": "Ada", "architecture": 89, "multiprocessors": 58, "memory_bytes": 25769803776,
                         "pci_bus_id": "0000:66:00.0"}],
            "now": {"watts": 312.4, "sm_mhz": 1755, "celsius": 48, "memory_used_bytes": 1610612736, "joules": 99.0,
                    "busy_percent": 7}},
    "cache": {"folder": "/cache", "problem": "read-only"},
    "recipes": [{"recipe": "fp8-row", "summary": "rows", "cpu": {"level": "emulated", "how": "through FP32"},
                 "gpu": {"level": "native", "how": "cuBLASLt"}},
                {"recipe": "mxfp4", "summary": "blocks", "cpu": {"level": "native", "how": "here"},
                 "gpu": {"level": "unavailable", "how": "not there"}}],
    "products": [{"engine": "CPU", "against": "double precision", "good": true, "error": 3e-6, "bound": 4e-6,
                  "different_values": 0, "extent": 512, "milliseconds": 1.5, "tflops": 0.179, "failure": ""},
                 {"engine": "CUDA", "against": "CPU", "good": false, "error": 5e-4, "bound": 4e-4,
                  "different_values": 2, "extent": 4096, "milliseconds": 0.25, "tflops": 550.0, "failure": ""}],
    "broken": [{"what": "a product is wrong", "remedy": "try again"}],
    "missing": [{"what": "no cuDNN", "remedy": "install it"}]})");
  EXPECT_EQ(nlohmann::json::parse(doctor_json(report)), want);
  report.problems.clear();
  report.reading.emplace().watts = 10;
  const auto json = nlohmann::json::parse(doctor_json(report));
  EXPECT_EQ(json.at("healthy"), true);
  EXPECT_EQ(json.at("gpu").at("now").at("watts"), 10.0);
  EXPECT_TRUE(json.at("gpu").at("now").at("joules").is_null()) << "not reported";
  report.reading.reset();
  EXPECT_TRUE(nlohmann::json::parse(doctor_json(report)).at("gpu").at("now").is_null());
}

TEST(ProductCheckTest, IsGoodWithinItsBoundAndWithTheSameCodes) {
  const GemmCheck at_the_bound{.error = 1e-3, .bound = 1e-3};
  EXPECT_TRUE(at_the_bound.good());
  EXPECT_FALSE((GemmCheck{.error = 1.01e-3, .bound = 1e-3}).good());
  EXPECT_FALSE((GemmCheck{.error = 0, .bound = 1, .different_values = 1}).good());
  EXPECT_FALSE((GemmCheck{.error = 0, .bound = 1, .failure = "it threw"}).good());
}

}  // namespace
}  // namespace quaver
