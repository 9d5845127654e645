#include "study/doctor.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <omp.h>
#include <sstream>
#include <unistd.h>

#include "engine/cache_folder.h"
#include "engine/cpu/openblas.h"
#include "formats/random.h"
#include "precision/recipe.h"
#include "quaver/error.h"
#include "train/environment.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

using Clock = std::chrono::steady_clock;

// Of /proc/cpuinfo, those that GEMMs and casts can use.
constexpr std::array<std::string_view, 14> wanted_instructions = {
    "sse4_2",   "avx",         "f16c",        "fma",         "avx2",     "avx512f", "avx512bw",
    "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "asimd",   "sve"};

std::string value_of(const std::string& line) {
  const std::size_t colon = line.find(':');
  if (colon == std::string::npos || colon + 2 > line.size()) return "";
  return line.substr(colon + 2);
}

Size kilobytes_of(const std::string& line) { return std::strtoll(value_of(line).c_str(), nullptr, 10) * 1024; }

CpuReport examine_cpu() {
  CpuReport report;
  report.model = cpu_model();
  report.cores = omp_get_num_procs();
  report.openblas = openblas_core();
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!report.instructions.empty() || !(line.starts_with("flags") || line.starts_with("Features"))) continue;
    std::istringstream words(value_of(line));
    for (std::string word; words >> word;) {
      if (std::ranges::find(wanted_instructions, word) != wanted_instructions.end()) {
        report.instructions.push_back(word);
      }
    }
  }
  std::ifstream memory("/proc/meminfo");
  for (std::string line; std::getline(memory, line);) {
    if (line.starts_with("MemTotal:")) report.memory = kilobytes_of(line);
    if (line.starts_with("MemAvailable:")) report.memory_available = kilobytes_of(line);
  }
  return report;
}

// A file is written there and removed: permissions alone say nothing about a full or read-only disk. Folders that had
// to be made for it go again.
CacheReport examine_cache() {
  CacheReport report;
  report.folder = cache_folder().string();
  if (report.folder.empty()) {
    report.problem = "neither QUAVER_CACHE_DIR, XDG_CACHE_HOME nor HOME is set";
    return report;
  }
  std::error_code error;
  std::vector<fs::path> made;
  for (fs::path folder = report.folder; !folder.empty() && !fs::exists(folder, error); folder = folder.parent_path()) {
    made.push_back(folder);
  }
  fs::create_directories(report.folder, error);
  const fs::path probe = fs::path(report.folder) / fmt::format("doctor.{}", getpid());
  if (error) {
    report.problem = error.message();
  } else {
    std::ofstream file(probe);
    file << "may be deleted\n";
    file.close();
    if (!file) report.problem = "a file cannot be written there";
  }
  fs::remove(probe, error);
  for (const fs::path& folder : made) {
    if (fs::is_empty(folder, error)) fs::remove(folder, error);
  }
  return report;
}

// One E4M3 operand with its values on the host.
struct TestOperand {
  TestOperand(Engine& engine, Format format, const char* name, Size extent, std::uint32_t stream) {
    site.name = name;
    site.spec = make_recipe("fp8-current", {}).x;
    site.stream = stream;
    std::vector<float> values(static_cast<std::size_t>(extent * extent));
    random_normals({17, 0, stream}, 0, values.data(), extent * extent);
    matrix = {nullptr, format, extent, extent};
    memory.push_back(engine.device().allocate(static_cast<std::size_t>(matrix.bytes())));
    matrix.data = memory.back().get();
    std::vector<std::byte> stored(static_cast<std::size_t>(matrix.bytes()));
    encode_array(matrix.format, values.data(), 1.0F, extent * extent, stored.data());
    engine.device().upload(stored.data(), matrix.data, stored.size());
    Site* const sites[] = {&site};
    engine.upload_scales(sites);
    tensor = QuantizedTensor(site, extent, extent, Copies::rows_only, engine.sharing(), [&](std::size_t bytes) {
      memory.push_back(engine.device().allocate(bytes));
      return memory.back().get();
    });
    engine.run(Quantize{matrix, tensor, {.seed = 17}});
  }

  // What the codes stand for, with the tensor's scale.
  std::vector<double> decoded(Engine& engine) const {
    CodeMatrix matrix = tensor.rows_matrix();
    std::vector<std::byte> codes(static_cast<std::size_t>(matrix.code_bytes()));
    engine.device().download(matrix.codes, codes.data(), codes.size());
    float scale = 1;
    engine.device().download(matrix.tensor_scale, &scale, sizeof(scale));
    matrix.codes = codes.data();
    std::vector<float> values(static_cast<std::size_t>(matrix.rows * matrix.cols));
    decode_rows(matrix, 0, matrix.rows, values.data(), matrix.cols);
    std::vector<double> scaled(values.begin(), values.end());
    for (double& value : scaled) value *= scale;
    return scaled;
  }

  Site site;
  View matrix;
  std::vector<std::shared_ptr<std::byte>> memory;
  QuantizedTensor tensor;
};

// What a GEMM was made of, and what came out.
struct TestGemm {
  Size extent = 0;
  std::vector<double> a;
  std::vector<double> b;
  std::vector<float> out;
  double seconds = 0;
};

// The largest distance of out from what it should be, over the sum of the magnitudes added. `expected` empty: from
// a·bᵀ in double precision. Rows are taken a few apart: each stands for a whole tile of any engine.
double largest_error(const TestGemm& gemm, const std::vector<float>& expected) {
  constexpr Size apart = 7;
  const Size n = gemm.extent;
  double largest = 0;
#pragma omp parallel for reduction(max : largest)
  for (Size r = 0; r < n; r += apart) {
    for (Size c = 0; c < n; ++c) {
      const double* a = gemm.a.data() + r * n;
      const double* b = gemm.b.data() + c * n;
      double sum = 0;
      double magnitudes = 0;
      for (Size k = 0; k < n; ++k) {
        sum += a[k] * b[k];
        magnitudes += std::abs(a[k] * b[k]);
      }
      const auto place = static_cast<std::size_t>(r * n + c);
      const double distance = std::abs(gemm.out[place] - (expected.empty() ? sum : expected[place]));
      const double error = distance / std::max(magnitudes, 1e-30);
      largest = std::isfinite(error) ? std::max(largest, error) : 1e30;
    }
  }
  return largest;
}

double time_gemm(Engine& engine, const Gemm& op) {
  engine.run(op);
  engine.device().synchronize();
  double best = 0;
  const auto start = Clock::now();
  for (int run = 0; run < 10; ++run) {
    const auto begun = Clock::now();
    engine.run(op);
    engine.device().synchronize();
    const double seconds = std::chrono::duration<double>(Clock::now() - begun).count();
    if (run == 0 || seconds < best) best = seconds;
    if (Clock::now() - start > std::chrono::milliseconds(300)) break;
  }
  return best;
}

enum class Wanted : std::uint8_t { everything, time_only };

TestGemm multiply(Engine& engine, Format high_precision, Size extent, Wanted wanted) {
  const TestOperand a(engine, high_precision, "doctor/x", extent, 1);
  const TestOperand b(engine, high_precision, "doctor/w", extent, 2);
  View out{nullptr, Format::f32, extent, extent};
  const auto memory = engine.device().allocate(static_cast<std::size_t>(out.bytes()));
  out.data = memory.get();
  TestGemm gemm;
  gemm.extent = extent;
  gemm.seconds = time_gemm(engine, {.a = a.tensor.rows(), .b = b.tensor.rows(), .out = out});
  if (wanted == Wanted::time_only) return gemm;
  gemm.a = a.decoded(engine);
  gemm.b = b.decoded(engine);
  gemm.out.resize(static_cast<std::size_t>(out.count()));
  engine.device().download(out.data, gemm.out.data(), gemm.out.size() * sizeof(float));
  return gemm;
}

void note_time(GemmCheck& check, const TestGemm& gemm) {
  check.extent = gemm.extent;
  check.milliseconds = gemm.seconds * 1e3;
  check.tflops = 2 * std::pow(static_cast<double>(gemm.extent), 3) / gemm.seconds / 1e12;
}

Size count_different(const std::vector<double>& a, const std::vector<double>& b) {
  Size different = 0;
  for (std::size_t i = 0; i < a.size(); ++i) different += a[i] == b[i] ? 0 : 1;
  return different;
}

std::string worded(const std::array<Support, 3>& gemms) {
  if (gemms[0].how == gemms[1].how && gemms[1].how == gemms[2].how) return gemms[0].how;
  return fmt::format("forward {}; input gradient {}; weight gradient {}", gemms[0].how, gemms[1].how, gemms[2].how);
}

std::string remedy_for_gpu(const CudaDevice& device) {
  return fmt::format(
      "build the module for this GPU with -DQUAVER_CUDA_ARCHITECTURES={}{}, and see that driver and CUDA's "
      "libraries fit together",
      device.architecture, device.architecture == 90 ? "a" : "");
}

void examine_gpu(DoctorReport& report) {
  const CudaDevice& device = report.cuda.machine.devices.front();
  try {
    const auto engine = make_cuda_engine({});
    report.gpu_engine = engine->name();
    for (RecipeSupport& recipe : report.recipes) recipe.gpu = recipe_support(*engine, recipe.recipe);
    // Tensor cores keep about 14 bits of a sum of FP8 products between promotions.
    const auto reference = make_cpu_engine(0);
    report.checks.push_back(check_gemm(*engine, *reference, 1024, 0x1p-11));
  } catch (const Error& error) {
    report.checks.push_back({.engine = device.name, .failure = error.what()});
  }
  const GemmCheck& check = report.checks.back();
  if (check.good()) return;
  const std::string what =
      !check.failure.empty()
          ? fmt::format("{} is there and cannot be used: {}", device.name, check.failure)
          : fmt::format(
                "an FP8 matrix product on {} is wrong: error {:.2g} where {:.2g} is allowed, {} operands cast "
                "to other codes than on the CPU",
                device.name, check.error, check.bound, check.different_values);
  report.problems.push_back({what, remedy_for_gpu(device)});
}

void examine_cuda(DoctorReport& report) {
  report.cuda = inspect_cuda();
  const auto& devices = report.cuda.machine.devices;
  GpuMeter meter(devices.empty() ? "" : devices.front().pci_bus_id);
  report.driver = meter.driver_version();
  report.card = meter.card();
  report.reading = meter.read();
  switch (report.cuda.state) {
    case CudaState::ready:
      return examine_gpu(report);
    case CudaState::unusable:
      report.problems.push_back({report.cuda.problem, report.cuda.remedy});
      return;
    case CudaState::absent:
    case CudaState::no_driver:
    case CudaState::no_gpu:
      report.advice.push_back({report.cuda.problem, report.cuda.remedy});
      return;
  }
}

void examine_cpu_engine(DoctorReport& report) {
  const auto engine = make_cpu_engine(0);
  for (const RecipeInfo& info : recipes()) {
    const std::string name(info.name);
    report.recipes.push_back({name, std::string(info.summary), recipe_support(*engine, name), {}});
  }
  constexpr Size extent = 512;
  report.checks.push_back(check_gemm(*engine, extent, static_cast<double>(extent) * 0x1p-24));
  const GemmCheck& check = report.checks.back();
  if (check.good()) return;
  report.problems.push_back(
      {"an FP8 matrix product on the CPU is wrong: " +
           (check.failure.empty() ? fmt::format("error {:.2g}", check.error) : check.failure),
       "check the installed OpenBLAS: `OPENBLAS_CORETYPE=Haswell quaver doctor` tries other kernels"});
}

void advise(DoctorReport& report) {
  if (report.gpu_engine.empty()) {
    const std::string why = report.cuda.problem.empty() ? "the GPU cannot be used" : report.cuda.problem;
    for (RecipeSupport& recipe : report.recipes) recipe.gpu = {SupportLevel::unavailable, why};
  }
  const CudaMachine& machine = report.cuda.machine;
  if (!report.gpu_engine.empty() && machine.cudnn.empty()) {
    report.advice.push_back({"attention runs without cuDNN: " + machine.cudnn_problem, "install cuDNN 9"});
  }
  if (!report.cache.problem.empty()) {
    report.advice.push_back(
        {fmt::format("the cache folder {} cannot be used: {}", report.cache.folder, report.cache.problem),
         "set QUAVER_CACHE_DIR to a folder that can be written; without one a GPU's GEMM algorithms are "
         "measured anew in every run"});
  }
}

}  // namespace

Support recipe_support(Engine& engine, const std::string& recipe) {
  const Recipe table = make_recipe(recipe, {});
  const std::array<Support, 3> gemms = {engine.support(table.x.rows, table.w.rows),
                                        engine.support(table.dy.rows, table.w.columns),
                                        engine.support(table.dy.columns, table.x.columns)};
  const auto* least = std::ranges::max_element(gemms, {}, &Support::level);
  return {least->level, worded(gemms)};
}

GemmCheck check_gemm(Engine& engine, Size extent, double bound) {
  GemmCheck check{.engine = engine.name(), .against = "double precision", .bound = bound};
  try {
    const TestGemm gemm = multiply(engine, engine.high_precision(), extent, Wanted::everything);
    check.error = largest_error(gemm, {});
    note_time(check, gemm);
  } catch (const Error& error) {
    check.failure = error.what();
  }
  return check;
}

GemmCheck check_gemm(Engine& engine, Engine& reference, Size extent, double bound) {
  GemmCheck check{.engine = engine.name(), .against = reference.name(), .bound = bound};
  try {
    const Format high_precision = engine.high_precision();
    const TestGemm gemm = multiply(engine, high_precision, extent, Wanted::everything);
    const TestGemm expected = multiply(reference, high_precision, extent, Wanted::everything);
    check.different_values = count_different(gemm.a, expected.a) + count_different(gemm.b, expected.b);
    check.error = largest_error(gemm, expected.out);
    note_time(check, gemm);
    // A GPU shows what it can do on large GEMMs only.
    if (engine.device().hardware().kind == HardwareKind::gpu)
      note_time(check, multiply(engine, high_precision, 4096, Wanted::time_only));
  } catch (const Error& error) {
    check.failure = error.what();
  }
  return check;
}

DoctorReport examine() {
  DoctorReport report;
  report.version = QUAVER_VERSION;
  report.compiler = compiler_name();
  report.cpu = examine_cpu();
  report.cache = examine_cache();
  examine_cpu_engine(report);
  examine_cuda(report);
  advise(report);
  return report;
}

}  // namespace quaver
