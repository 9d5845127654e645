#include "engine/cuda/gemm/gemm_algorithms.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <sstream>

#include "engine/cache_folder.h"
#include "quaver/error.h"

namespace quaver::cuda {
namespace {

// Multiplications; below, a choice saves next to nothing. With strides a problem may be what was cut off a larger one:
// of unusual sizes, for which cuBLASLt's first proposal may be far from the best.
constexpr std::int64_t large_problem = std::int64_t{1} << 30;
constexpr std::int64_t large_strided_problem = std::int64_t{1} << 22;
constexpr int most_candidates = 32;
constexpr int most_runs = 5;
constexpr float milliseconds_of_few_runs = 3;  // beyond them one run tells enough
constexpr double seconds_a_problem = 0.25;

void check_library(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(std::string(what) + ": cuBLASLt says " + cublasLtGetStatusName(status),
              "check that the CUDA libraries and the GPU's driver fit together; `quaver` was built for cuBLASLt " +
                  std::to_string(CUBLAS_VERSION));
}

const char* name_of(cudaDataType_t type) {
  switch (type) {
    case CUDA_R_32F:
      return "f32";
    case CUDA_R_16BF:
      return "bf16";
    case CUDA_R_16F:
      return "f16";
    case CUDA_R_8F_E4M3:
      return "e4m3";
    case CUDA_R_8F_E5M2:
      return "e5m2";
    default:
      return "?";
  }
}

std::int32_t mode_of(Scaling scaling) {
  switch (scaling) {
    case Scaling::row:
      return CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    case Scaling::vector128:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case Scaling::block128:
      return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    case Scaling::none:
    case Scaling::tensor:
      break;
  }
  return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}

// Where it says more than the sizes do: choices that are kept from before strides stay good.
std::string stride_text(std::int64_t stride, std::int64_t rows) {
  return stride == rows ? "" : " ld" + std::to_string(stride);
}

std::string key_of(const Factor& factor, Scaling scaling) {
  std::ostringstream text;
  text << name_of(factor.type) << ' ' << factor.rows << 'x' << factor.cols
       << (factor.operation == CUBLAS_OP_T ? "T" : "N") << stride_text(factor.stride, factor.rows) << " s"
       << static_cast<int>(scaling) << " @" << factor.alignment;
  return text.str();
}

// A problem and its arguments as cuBLASLt descriptors.
class Descriptors {
 public:
  Descriptors(const Problem& problem, const Arguments& arguments) {
    check_library(cublasLtMatmulDescInit(&operation, problem.compute, CUDA_R_32F), "describing a product");
    set(CUBLASLT_MATMUL_DESC_TRANSA, problem.left.operation);
    set(CUBLASLT_MATMUL_DESC_TRANSB, problem.right.operation);
    if (problem.scalars == Scalars::device) set(CUBLASLT_MATMUL_DESC_POINTER_MODE, CUBLASLT_POINTER_MODE_DEVICE);
    if (problem.left_scaling != Scaling::none) set_scales(problem, arguments);
    if (problem.bias == BiasBy::library) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, arguments.bias);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, static_cast<std::int32_t>(problem.out_type));
    }
    layout(left, problem.left);
    layout(right, problem.right);
    layout(out, {.type = problem.out_type, .rows = problem.m, .cols = problem.n, .stride = problem.out_stride});
  }

  cublasLtMatmulDescOpaque_t operation{};
  cublasLtMatrixLayoutOpaque_t left{};
  cublasLtMatrixLayoutOpaque_t right{};
  cublasLtMatrixLayoutOpaque_t out{};

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check_library(cublasLtMatmulDescSetAttribute(&operation, attribute, &value, sizeof(value)), "describing a product");
  }

  void set_scales(const Problem& problem, const Arguments& arguments) {
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, mode_of(problem.left_scaling));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, mode_of(problem.right_scaling));
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, arguments.left_scales);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, arguments.right_scales);
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(problem.sums == Sums::fast));
  }

  static void layout(cublasLtMatrixLayoutOpaque_t& matrix, const Factor& factor) {
    check_library(cublasLtMatrixLayoutInit(&matrix, factor.type, static_cast<std::uint64_t>(factor.rows),
                                           static_cast<std::uint64_t>(factor.cols), factor.stride),
                  "describing a matrix");
  }
};

class Preference {
 public:
  explicit Preference(const Problem& problem) {
    check_library(cublasLtMatmulPreferenceInit(&options), "describing what is wanted of a product");
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, gemm_workspace_limit);
    // Partial sums of a split reduction meet in FP32 and in a fixed order.
    set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, problem.left.alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, problem.right.alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, problem.out_alignment);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, problem.out_alignment);
  }

  cublasLtMatmulPreferenceOpaque_t options{};

 private:
  template <class T>
  void set(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    check_library(cublasLtMatmulPreferenceSetAttribute(&options, attribute, &value, sizeof(value)),
                  "describing what is wanted of a product");
  }
};

bool sums_in_order(const cublasLtMatmulAlgo_t& algorithm) {
  std::uint32_t scheme = 0;
  std::size_t written = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoConfigGetAttribute(&algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
                                                                     &scheme, sizeof(scheme), &written);
  return status == CUBLAS_STATUS_SUCCESS &&
         (scheme == CUBLASLT_REDUCTION_SCHEME_NONE || scheme == CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
}

std::string file_name(const std::string& gpu) {
  std::string name = gpu;
  for (char& c : name) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    if (!plain) c = '-';
  }
  return "gemm-" + name + "-" + std::to_string(cublasLtGetVersion()) + ".txt";
}

static_assert(sizeof(cublasLtMatmulAlgo_t) == sizeof(GemmChoice::algorithm));

GemmChoice choice_of(const cublasLtMatmulHeuristicResult_t& candidate, float microseconds) {
  GemmChoice choice;
  std::memcpy(choice.algorithm.data(), &candidate.algo, sizeof(candidate.algo));
  choice.workspace = candidate.workspaceSize;
  choice.microseconds = microseconds;
  return choice;
}

[[noreturn]] void fail(const Problem& problem, cublasStatus_t status) {
  throw Error("product " + problem.key() + ": cuBLASLt says " + cublasLtGetStatusName(status),
              "choose another format for this layer, such as bf16, or widths that are multiples of 8");
}

using Event = std::unique_ptr<CUevent_st, decltype(&cudaEventDestroy)>;

Event make_event() {
  cudaEvent_t event = nullptr;
  check(cudaEventCreate(&event), "making a timer");
  return {event, &cudaEventDestroy};
}

}  // namespace

std::string Problem::key() const {
  std::ostringstream text;
  text << key_of(left, left_scaling) << " * " << key_of(right, right_scaling) << " = " << name_of(out_type) << ' ' << m
       << 'x' << n << 'x' << k << stride_text(out_stride, m) << " @" << out_alignment << " c"
       << static_cast<int>(compute) << (scalars == Scalars::device ? " device" : "")
       << (sums == Sums::fast ? " fast" : "") << (bias == BiasBy::library ? " bias" : "")
       << (store == Store::add ? " add" : "");
  return text.str();
}

std::size_t Problem::out_bytes() const {
  return static_cast<std::size_t>(out_stride * n) * (out_type == CUDA_R_32F ? sizeof(float) : sizeof(std::uint16_t));
}

bool Problem::is_large() const {
  const bool strided = left.stride != left.rows || right.stride != right.rows || out_stride != m;
  return m * n * k >= (strided ? large_strided_problem : large_problem);
}

GemmAlgorithms::GemmAlgorithms(Gpu& gpu) : gpu_(gpu) {
  workspace_ = gpu.workspace(Slot::blas, gemm_workspace_limit);
  check_library(cublasLtCreate(&library_), "opening cuBLASLt");
  if (const std::filesystem::path directory = cache_folder(); !directory.empty()) {
    file_ = directory / file_name(gpu.name());
    known_ = read_gemm_choices(file_);
  }
}

GemmAlgorithms::~GemmAlgorithms() { cublasLtDestroy(library_); }

std::string GemmAlgorithms::library() const {
  const std::size_t version = cublasLtGetVersion();
  return "cuBLASLt " + std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
         std::to_string(version % 100);
}

void GemmAlgorithms::fix(GemmChoices choices) {
  known_ = std::move(choices);
  measures_ = false;
  entries_.clear();
}

GemmAlgorithms::Entry& GemmAlgorithms::entry(const Problem& problem) {
  const auto [found, added] = entries_.try_emplace(problem);
  Entry& entry = found->second;
  if (!added) return entry;
  entry.candidates = proposals(problem);
  Candidate recalled{};
  if (!entry.candidates.empty() && recall(problem, recalled)) entry.candidates = {recalled};
  entry.settled = !measures_ || entry.candidates.size() < 2 || !problem.is_large();
  return entry;
}

std::vector<GemmAlgorithms::Candidate> GemmAlgorithms::proposals(const Problem& problem) const {
  // Pointers are not followed here, but their alignment counts.
  const auto* any = reinterpret_cast<const float*>(workspace_);
  Descriptors descriptors(problem, {.left_scales = any, .right_scales = any, .bias = any});
  Preference preference(problem);
  std::vector<Candidate> candidates(most_candidates);
  int count = 0;
  const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
      library_, &descriptors.operation, &descriptors.left, &descriptors.right, &descriptors.out, &descriptors.out,
      &preference.options, most_candidates, candidates.data(), &count);
  if (status != CUBLAS_STATUS_SUCCESS) return {};
  candidates.resize(static_cast<std::size_t>(std::clamp(count, 0, most_candidates)));
  std::erase_if(candidates, [](const Candidate& candidate) {
    return candidate.state != CUBLAS_STATUS_SUCCESS || candidate.workspaceSize > gemm_workspace_limit;
  });
  return candidates;
}

bool GemmAlgorithms::recall(const Problem& problem, Candidate& candidate) const {
  const auto found = known_.find(problem.key());
  if (found == known_.end()) return false;
  const auto* any = reinterpret_cast<const float*>(workspace_);
  Descriptors descriptors(problem, {.left_scales = any, .right_scales = any, .bias = any});
  cublasLtMatmulAlgo_t algorithm{};
  std::memcpy(&algorithm, found->second.algorithm.data(), sizeof(algorithm));
  const cublasStatus_t status =
      cublasLtMatmulAlgoCheck(library_, &descriptors.operation, &descriptors.left, &descriptors.right, &descriptors.out,
                              &descriptors.out, &algorithm, &candidate);
  if (status != CUBLAS_STATUS_SUCCESS || candidate.workspaceSize > gemm_workspace_limit) return false;
  candidate.algo = algorithm;
  return sums_in_order(candidate.algo);
}

// Measured runs write into memory of their own, which is given back at once.
void GemmAlgorithms::settle(const Problem& problem, Arguments arguments, Entry& entry) {
  std::size_t free = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free memory");
  const std::size_t bytes = problem.out_bytes();
  if (bytes + (total >> 5) > free || cudaMalloc(&arguments.out, bytes) != cudaSuccess) {
    cudaGetLastError();
    gpu_.notice(
        "the GPU's memory is too full to measure the algorithms of products: they run with the library's first");
    entry.settled = true;
    return;
  }
  measure(problem, arguments, entry);
  gpu_.synchronize();
  check(cudaFree(arguments.out), "freeing memory of measured products");
}

void GemmAlgorithms::run(const Problem& problem, const Arguments& arguments) {
  Entry& entry = this->entry(problem);
  if (!entry.settled && !gpu_.capturing()) settle(problem, arguments, entry);
  if (entry.candidates.empty()) return fail(problem, CUBLAS_STATUS_NOT_SUPPORTED);
  if (enqueue(problem, arguments, entry.candidates.front()) == CUBLAS_STATUS_SUCCESS) return;
  // A choice out of the file may pass cuBLASLt's check and fail all the same.
  entry = {proposals(problem), true};
  const cublasStatus_t status =
      entry.candidates.empty() ? CUBLAS_STATUS_NOT_SUPPORTED : enqueue(problem, arguments, entry.candidates.front());
  if (status != CUBLAS_STATUS_SUCCESS) fail(problem, status);
}

cublasStatus_t GemmAlgorithms::enqueue(const Problem& problem, const Arguments& arguments,
                                       const Candidate& candidate) const {
  Descriptors descriptors(problem, arguments);
  const float beta = problem.store == Store::add ? 1.0F : 0.0F;
  const bool host = problem.scalars == Scalars::host;
  return cublasLtMatmul(library_, &descriptors.operation, host ? &arguments.alpha : arguments.scalars, arguments.left,
                        &descriptors.left, arguments.right, &descriptors.right, host ? &beta : arguments.scalars + 1,
                        arguments.out, &descriptors.out, arguments.out, &descriptors.out, &candidate.algo, workspace_,
                        gemm_workspace_limit, gpu_.stream());
}

// The clocks fall while candidates are measured one after the other: those that are close take turns afterwards.
void GemmAlgorithms::measure(const Problem& problem, const Arguments& arguments, Entry& entry) {
  constexpr float close = 1.06F;
  constexpr std::size_t most_finalists = 4;
  constexpr int turns = 3;
  const auto start = std::chrono::steady_clock::now();
  std::vector<TimedCandidate> timed;
  float fastest = std::numeric_limits<float>::infinity();
  for (const Candidate& candidate : entry.candidates) {
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    if (!timed.empty() && spent.count() > seconds_a_problem) break;
    timed.push_back({milliseconds(problem, arguments, candidate, fastest), candidate});
    fastest = std::min(fastest, timed.back().milliseconds);
  }
  std::ranges::stable_sort(timed, {}, &TimedCandidate::milliseconds);
  std::erase_if(timed, [&](const TimedCandidate& each) { return each.milliseconds > close * fastest; });
  if (timed.size() > most_finalists) timed.resize(most_finalists);
  if (timed.size() > 1) {
    const int runs = fastest > milliseconds_of_few_runs ? 1 : most_runs;
    for (TimedCandidate& each : timed) each.milliseconds = 0;
    for (int turn = 0; turn < turns; ++turn) {
      for (TimedCandidate& each : timed) {
        each.milliseconds += timed_runs(problem, arguments, each.candidate, runs) / turns;
      }
    }
    std::ranges::stable_sort(timed, {}, &TimedCandidate::milliseconds);
  }
  const TimedCandidate& best = timed.front();
  entry.candidates = {best.candidate};
  entry.settled = true;
  if (std::isfinite(best.milliseconds)) remember(problem.key(), choice_of(best.candidate, 1000 * best.milliseconds));
}

// Median of several runs; of one where that is enough to see that it is far slower than `limit`, or slow altogether.
float GemmAlgorithms::milliseconds(const Problem& problem, const Arguments& arguments, const Candidate& candidate,
                                   float limit) const {
  constexpr float far_slower = 1.5F;
  // The first run loads the kernel.
  if (enqueue(problem, arguments, candidate) != CUBLAS_STATUS_SUCCESS) return std::numeric_limits<float>::infinity();
  const float first = timed_runs(problem, arguments, candidate, 1);
  if (first > far_slower * limit || first > milliseconds_of_few_runs) return first;
  return timed_runs(problem, arguments, candidate, most_runs);
}

float GemmAlgorithms::timed_runs(const Problem& problem, const Arguments& arguments, const Candidate& candidate,
                                 int count) const {
  std::vector<Event> events;
  for (int i = 0; i <= count; ++i) events.push_back(make_event());
  check(cudaEventRecord(events[0].get(), gpu_.stream()), "starting a timer");
  for (std::size_t i = 1; i < events.size(); ++i) {
    if (enqueue(problem, arguments, candidate) != CUBLAS_STATUS_SUCCESS) return std::numeric_limits<float>::infinity();
    check(cudaEventRecord(events[i].get(), gpu_.stream()), "stopping a timer");
  }
  check(cudaEventSynchronize(events.back().get()), "measuring a product");
  std::vector<float> times(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < times.size(); ++i) {
    check(cudaEventElapsedTime(&times[i], events[i].get(), events[i + 1].get()), "reading a timer");
  }
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

void GemmAlgorithms::remember(const std::string& key, const GemmChoice& choice) {
  known_[key] = choice;
  if (file_.empty()) {
    gpu_.notice(
        "no place to keep the algorithms of products, which every run measures anew: set QUAVER_CACHE_DIR to a "
        "directory");
    return;
  }
  // Other processes may have written since.
  for (const auto& [other, theirs] : read_gemm_choices(file_)) known_.try_emplace(other, theirs);
  if (write_gemm_choices(file_, known_)) return;
  gpu_.notice("the algorithms of products cannot be kept in " + file_.string() +
              ", so every run measures them anew: set QUAVER_CACHE_DIR to a directory that can be written");
}

}  // namespace quaver::cuda
