// Checks the blockwise GEMM for Hopper against a plain kernel, and times it against cuBLASLt's blockwise modes at GPT
// 350M's shapes. `check` only checks, `small` only small shapes; `time` only times, `roles` no other shapes, `wgrad`
// only wgrad's.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <functional>
#include <string>
#include <vector>

#include "engine/cuda/gemm/block_gemm.h"
#include "quaver/error.h"

namespace quaver::cuda {
namespace {

struct Shape {
  Size m;
  Size n;
  Size k;
  Format out = Format::bf16;
  Store store = Store::replace;
  bool bias = false;
};

// ---- data ---------------------------------------------------------------------------------------------------------

template <class T>
class Memory {
 public:
  explicit Memory(Size count) : count_(count) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), std::max<Size>(count, 64) * sizeof(T)), "allocating");
  }
  ~Memory() { cudaFree(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  T* get() const { return data_; }
  Size count() const { return count_; }

 private:
  T* data_ = nullptr;
  Size count_;
};

__device__ std::uint32_t mix(std::uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9ULL;
  return static_cast<std::uint32_t>(x >> 32);
}
__device__ float uniform(std::uint64_t x) { return (mix(x) + 0.5F) * 0x1p-32F; }
__device__ float normal(std::uint64_t x) { return sqrtf(-2 * logf(uniform(2 * x))) * cospif(2 * uniform(2 * x + 1)); }

// Codes of normal numbers as a block scale leaves them: the largest of a block near E4M3's largest.
__global__ void fill_codes(std::uint8_t* codes, Size count, std::uint64_t seed) {
  const Size i = Size{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) codes[i] = __nv_cvt_float_to_fp8(normal(seed + i) * 130, __NV_SATFINITE, __NV_E4M3);
}
__global__ void fill_scales(float* scales, Size count, std::uint64_t seed) {
  const Size i = Size{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) scales[i] = (0.5F + uniform(seed + i)) / 130;
}
__global__ void fill_normal(float* values, Size count, std::uint64_t seed) {
  const Size i = Size{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) values[i] = normal(seed + i);
}

unsigned blocks(Size count) { return static_cast<unsigned>(ceil_div(count, 256)); }

struct Problem {
  Shape shape;
  Memory<std::uint8_t> a;
  Memory<std::uint8_t> b;
  Memory<float> a_scales;
  Memory<float> b_scales;
  Memory<float> bias;
  Memory<std::byte> out;
  int multiprocessors;
  BlockGemmSchedule schedule;
  Memory<float> partials;

  static Size slices(const Shape& s) { return ceil_div(s.k, 128); }
  static Size out_bytes(const Shape& s) { return s.m * s.n * (s.out == Format::f32 ? 4 : 2); }

  Problem(const Shape& s, int processors)
      : shape(s),
        a(s.m * s.k),
        b(s.n * s.k),
        a_scales(s.m * slices(s)),
        b_scales(slices(s) * ceil_div(s.n, 128)),
        bias(s.n),
        out(out_bytes(s)),
        multiprocessors(processors),
        schedule(block_gemm_schedule({s.m, s.n, s.k}, s.out, processors)),
        partials(block_gemm_partial_bytes(schedule) / 4) {
    fill_codes<<<blocks(a.count()), 256>>>(a.get(), a.count(), 1ULL << 40);
    fill_codes<<<blocks(b.count()), 256>>>(b.get(), b.count(), 2ULL << 40);
    fill_scales<<<blocks(a_scales.count()), 256>>>(a_scales.get(), a_scales.count(), 3ULL << 40);
    fill_scales<<<blocks(b_scales.count()), 256>>>(b_scales.get(), b_scales.count(), 4ULL << 40);
    fill_normal<<<blocks(bias.count()), 256>>>(bias.get(), bias.count(), 5ULL << 40);
    check_launch("filling");
  }

  BlockGemm gemm() const {
    return {.shape = {shape.m, shape.n, shape.k},
            .a = a.get(),
            .b = b.get(),
            .a_stride = shape.k,
            .b_stride = shape.k,
            .a_scales = a_scales.get(),
            .b_scales = b_scales.get(),
            .out = out.get(),
            .out_format = shape.out,
            .out_stride = shape.n,
            .bias = shape.bias ? bias.get() : nullptr,
            .alpha = 0.75F,
            .store = shape.store,
            .partials = partials.get()};
  }
};

// ---- the plain kernel ---------------------------------------------------------------------------------------------

__device__ float decode(std::uint8_t code) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3))); }

struct Difference {
  double error = 0;  // Σ (out − reference)²
  double reference = 0;
  float largest = 0;  // |out − reference|
  unsigned unwritten = 0;
};

// One thread per sampled element: `stride` apart.
__global__ void compare_kernel(BlockGemm op, float before, Size stride, Difference* total) {
  const Size index = (Size{blockIdx.x} * blockDim.x + threadIdx.x) * stride;
  if (index >= op.shape.m * op.shape.n) return;
  const Size row = index / op.shape.n;
  const Size col = index % op.shape.n;
  const Size slices = (op.shape.k + 127) / 128;
  const auto* a = static_cast<const std::uint8_t*>(op.a) + row * op.shape.k;
  const auto* b = static_cast<const std::uint8_t*>(op.b) + col * op.shape.k;
  double sum = 0;
  for (Size s = 0; s < slices; ++s) {
    float part = 0;
    for (Size i = s * 128; i < min(op.shape.k, (s + 1) * 128); ++i) part += decode(a[i]) * decode(b[i]);
    const float scale = op.b_scales[col / 128 * slices + s];
    sum += static_cast<double>(part) * op.a_scales[row * slices + s] * scale;
  }
  sum *= op.alpha;
  if (op.bias != nullptr) sum += op.bias[col];
  if (op.store == Store::add) sum += before;
  const float out = op.out_format == Format::f32 ? static_cast<const float*>(op.out)[index]
                                                 : __bfloat162float(static_cast<const __nv_bfloat16*>(op.out)[index]);
  const float error = fabsf(static_cast<float>(out - sum));
  if (!(error < 1e30F)) return void(atomicAdd(&total->unwritten, 1U));
  atomicAdd(&total->error, static_cast<double>(error) * error);
  atomicAdd(&total->reference, sum * sum);
  atomicMax(reinterpret_cast<int*>(&total->largest), __float_as_int(error));
}

__global__ void fill_out(float* out, Size count, float value) {
  const Size i = Size{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) out[i] = value;
}

// NaN where the result replaces, so that what is not written shows.
constexpr float before = 3;
void reset(const Problem& p) {
  if (p.shape.store == Store::add) {
    fill_out<<<blocks(p.shape.m * p.shape.n), 256>>>(reinterpret_cast<float*>(p.out.get()), p.shape.m * p.shape.n,
                                                     before);
  } else {
    check(cudaMemset(p.out.get(), 0xFF, static_cast<std::size_t>(p.out.count())), "poisoning");
  }
  check(cudaMemset(p.partials.get(), 0xFF, static_cast<std::size_t>(p.partials.count()) * 4), "poisoning");
}

std::string text_of(const BlockGemmSchedule& s) {
  if (s.split() == 0) return "";
  char text[96];
  std::snprintf(text, sizeof(text), ", %d of %d tiles split into %d x %d + %d slices", s.split(), s.tiles(),
                s.long_parts, s.long_slices, s.short_slices);
  return text;
}

std::string text_of(const Shape& s) {
  char text[128];
  std::snprintf(text, sizeof(text), "%6ld x %5ld x %5ld %-4s%s%s", static_cast<long>(s.m), static_cast<long>(s.n),
                static_cast<long>(s.k), s.out == Format::f32 ? "f32" : "bf16", s.store == Store::add ? " add" : "",
                s.bias ? " bias" : "");
  return text;
}

bool check_shape(const Shape& shape, int multiprocessors) {
  const Problem p(shape, multiprocessors);
  const BlockGemm op = p.gemm();
  reset(p);
  run_block_gemm(op, p.multiprocessors, nullptr);
  check(cudaDeviceSynchronize(), "checking");
  Memory<Difference> total(1);
  const Size elements = shape.m * shape.n;
  const Size sampled = std::max<Size>(1, elements * shape.k / (Size{1} << 34)) | 1;  // odd: all columns are met
  check(cudaMemset(total.get(), 0, sizeof(Difference)), "checking");
  compare_kernel<<<blocks(ceil_div(elements, sampled)), 256>>>(op, before, sampled, total.get());
  Difference d;
  check(cudaMemcpy(&d, total.get(), sizeof(d), cudaMemcpyDeviceToHost), "checking");

  std::vector<std::byte> first(static_cast<std::size_t>(p.out.count()));
  std::vector<std::byte> second(first.size());
  check(cudaMemcpy(first.data(), p.out.get(), first.size(), cudaMemcpyDeviceToHost), "checking");
  bool same = true;
  for (int again = 0; again < 3; ++again) {
    reset(p);
    run_block_gemm(op, p.multiprocessors, nullptr);
    check(cudaMemcpy(second.data(), p.out.get(), second.size(), cudaMemcpyDeviceToHost), "checking");
    same = same && first == second;
  }

  const double typical = std::sqrt(d.reference / (static_cast<double>(elements) / sampled));
  const double relative = std::sqrt(d.error / d.reference);
  const double limit = shape.out == Format::f32 ? 1e-3 : 3e-3;
  const bool ok = d.unwritten == 0 && relative < limit && d.largest / typical < 12 * limit && same;
  std::printf("%s %s: error %.1e, largest %.1e, unwritten %u%s%s\n", ok ? "ok  " : "FAIL", text_of(shape).c_str(),
              relative, d.largest / typical, d.unwritten, text_of(p.schedule).c_str(),
              same ? "" : ", another result each time");
  std::fflush(stdout);
  return ok;
}

// ---- cuBLASLt -----------------------------------------------------------------------------------------------------

void check_library(cublasStatus_t status) {
  if (status != CUBLAS_STATUS_SUCCESS) throw Error(std::string("cuBLASLt: ") + cublasLtGetStatusName(status));
}

// Its scales lie otherwise; any will do to be timed.
class Library {
 public:
  Library(const Problem& p, cublasLtMatmulMatrixScale_t b_scales)
      : problem_(p), workspace_(Size{64} << 20), scales_(Size{1} << 24) {
    const Shape& s = p.shape;
    fill_scales<<<blocks(scales_.count()), 256>>>(scales_.get(), scales_.count(), 7ULL << 40);
    check_library(cublasLtCreate(&handle_));
    check_library(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, static_cast<std::int32_t>(b_scales));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, static_cast<std::int32_t>(CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F));
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, static_cast<const float*>(scales_.get()));
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, static_cast<const float*>(scales_.get()));
    check_library(cublasLtMatrixLayoutCreate(&left_, CUDA_R_8F_E4M3, s.k, s.n, s.k));
    check_library(cublasLtMatrixLayoutCreate(&right_, CUDA_R_8F_E4M3, s.k, s.m, s.k));
    check_library(cublasLtMatrixLayoutCreate(&out_, s.out == Format::f32 ? CUDA_R_32F : CUDA_R_16BF, s.n, s.m, s.n));
    cublasLtMatmulPreference_t preference = nullptr;
    check_library(cublasLtMatmulPreferenceCreate(&preference));
    const auto bytes = static_cast<std::size_t>(workspace_.count());
    const auto in_order = static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE);
    check_library(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                                       sizeof(bytes)));
    check_library(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                       &in_order, sizeof(in_order)));
    if (cublasLtMatmulAlgoGetHeuristic(handle_, operation_, left_, right_, out_, out_, preference, most,
                                       candidates.data(), &count) != CUBLAS_STATUS_SUCCESS) {
      count = 0;
    }
    cublasLtMatmulPreferenceDestroy(preference);
  }
  ~Library() {
    cublasLtMatrixLayoutDestroy(left_);
    cublasLtMatrixLayoutDestroy(right_);
    cublasLtMatrixLayoutDestroy(out_);
    cublasLtMatmulDescDestroy(operation_);
    cublasLtDestroy(handle_);
  }

  void run(const cublasLtMatmulHeuristicResult_t& candidate) const {
    const float alpha = 0.75F;
    const float beta = problem_.shape.store == Store::add ? 1.0F : 0.0F;
    check_library(cublasLtMatmul(handle_, operation_, &alpha, problem_.b.get(), left_, problem_.a.get(), right_, &beta,
                                 problem_.out.get(), out_, problem_.out.get(), out_, &candidate.algo, workspace_.get(),
                                 static_cast<std::size_t>(workspace_.count()), nullptr));
  }

  static constexpr int most = 16;
  std::array<cublasLtMatmulHeuristicResult_t, most> candidates{};
  int count = 0;

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check_library(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof(value)));
  }

  const Problem& problem_;
  Memory<std::byte> workspace_;
  Memory<float> scales_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t left_ = nullptr;
  cublasLtMatrixLayout_t right_ = nullptr;
  cublasLtMatrixLayout_t out_ = nullptr;
};

// ---- timing -------------------------------------------------------------------------------------------------------

// Median, in microseconds. As in a training step, each run follows work that moves bytes: one GEMM after another would
// measure the card's power limit.
float time_of(const std::function<void()>& work, int runs) {
  constexpr Size copied = Size{1} << 29;
  static const Memory<std::byte> from(copied);
  static const Memory<std::byte> to(copied);
  std::vector<cudaEvent_t> events(static_cast<std::size_t>(runs) * 2);
  for (cudaEvent_t& event : events) check(cudaEventCreate(&event), "timing");
  for (int i = 0; i < 3; ++i) work();
  for (std::size_t i = 0; i < events.size(); i += 2) {
    check(cudaMemcpyAsync(to.get(), from.get(), copied, cudaMemcpyDeviceToDevice), "timing");
    check(cudaEventRecord(events[i]), "timing");
    work();
    check(cudaEventRecord(events[i + 1]), "timing");
  }
  check(cudaDeviceSynchronize(), "timing");
  std::vector<float> times(static_cast<std::size_t>(runs));
  for (std::size_t i = 0; i < times.size(); ++i) {
    check(cudaEventElapsedTime(&times[i], events[2 * i], events[2 * i + 1]), "timing");
  }
  for (cudaEvent_t event : events) cudaEventDestroy(event);
  std::nth_element(times.begin(), times.begin() + runs / 2, times.end());
  return 1000 * times[static_cast<std::size_t>(runs) / 2];
}

struct Times {
  double ours = 0;  // microseconds
  double library = 0;
  double vectors = 0;  // cuBLASLt's with scales of 1 x 128 blocks on both sides: wgrad without 128 x 128 blocks of x
  double operations = 0;
};

constexpr int runs = 40;

// The best of cuBLASLt's candidates; infinite where it has none.
float time_library(const Problem& p, cublasLtMatmulMatrixScale_t b_scales) {
  const Library library(p, b_scales);
  float best = INFINITY;
  int choice = 0;
  for (int i = 0; i < library.count; ++i) {
    const float time = time_of([&] { library.run(library.candidates[i]); }, 5);
    if (time < best) choice = i;
    best = std::min(best, time);
  }
  if (library.count == 0) return INFINITY;
  return time_of([&] { library.run(library.candidates[choice]); }, runs);
}

bool is_wgrad(const Shape& shape) { return shape.store == Store::add; }

Times time_shape(const Shape& shape, int multiprocessors) {
  const Problem p(shape, multiprocessors);
  const BlockGemm op = p.gemm();
  const auto ours = [&] { return time_of([&] { run_block_gemm(op, p.multiprocessors, nullptr); }, runs); };
  const float first = ours();
  Times times;
  times.library = time_library(p, CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F);
  if (is_wgrad(shape)) times.vectors = time_library(p, CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F);
  times.ours = (first + ours()) / 2;
  times.operations = 2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k);
  const auto speed = [&](double time) { return times.operations / time * 1e-6; };
  std::printf("%s: %7.1f us %5.0f TFLOP/s; cuBLASLt %7.1f us %5.0f", text_of(shape).c_str(), times.ours,
              speed(times.ours), times.library, speed(times.library));
  if (is_wgrad(shape)) std::printf(", 1 x 128 on both sides %7.1f us %5.0f", times.vectors, speed(times.vectors));
  const bool chosen = block_gemm_is_faster({shape.m, shape.n, shape.k}, shape.out, multiprocessors);
  std::printf("%s%s\n", text_of(p.schedule).c_str(), chosen ? "" : " (cuBLASLt by rule)");
  std::fflush(stdout);
  return times;
}

void time_role(const char* role, const std::vector<Shape>& shapes, int multiprocessors) {
  Times sum;
  for (const Shape& shape : shapes) {
    const Times times = time_shape(shape, multiprocessors);
    sum.ours += times.ours;
    sum.library += times.library;
    sum.vectors += times.vectors;
    sum.operations += times.operations;
  }
  std::printf("%-6s %6.0f TFLOP/s, cuBLASLt %6.0f: %.2f times as fast", role, sum.operations / sum.ours * 1e-6,
              sum.operations / sum.library * 1e-6, sum.library / sum.ours);
  if (sum.vectors > 0) {
    std::printf("; 1 x 128 on both sides %6.0f: %.2f", sum.operations / sum.vectors * 1e-6, sum.vectors / sum.ours);
  }
  std::printf("\n");
}

Shape wgrad(Size m, Size n, Size k) { return {m, n, k, Format::f32, Store::add}; }

void time_wgrad(int multiprocessors, bool others) {
  constexpr Size tokens = 65536;
  if (others)
    time_role("others",
              {wgrad(768, 768, 16384), wgrad(2304, 768, 16384), wgrad(3072, 768, 16384), wgrad(896, 896, 32768),
               wgrad(4864, 896, 32768), wgrad(896, 4864, 32768), wgrad(1536, 1536, 16384), wgrad(8960, 1536, 16384),
               wgrad(3584, 3584, 8192), wgrad(18944, 3584, 8192), wgrad(1024, 1024, 8192), wgrad(3072, 1024, 8192)},
              multiprocessors);
  time_role(
      "wgrad",
      {wgrad(3072, 1024, tokens), wgrad(1024, 1024, tokens), wgrad(4096, 1024, tokens), wgrad(1024, 4096, tokens)},
      multiprocessors);
}

void time_all(int multiprocessors, bool others) {
  constexpr Size tokens = 65536;
  if (others) {
    time_role("others",
              {{16384, 768, 768},
               {16384, 2304, 768},
               {16384, 768, 3072},
               {16384, 896, 896},
               {16384, 4864, 896},
               {16384, 896, 4864},
               {8192, 1024, 1024},
               {4096, 4096, 1024},
               {2048, 1024, 1024},
               {512, 4096, 1024},
               {8192, 8192, 8192}},
              multiprocessors);
  }
  for (const bool bias : {false, true}) {  // cuBLASLt's without
    const auto fprop = [&](Size n, Size k) { return Shape{tokens, n, k, Format::bf16, Store::replace, bias}; };
    time_role(bias ? "biased" : "fprop", {fprop(3072, 1024), fprop(1024, 1024), fprop(4096, 1024), fprop(1024, 4096)},
              multiprocessors);
  }
  time_role("dgrad", {{tokens, 1024, 3072}, {tokens, 1024, 1024}, {tokens, 1024, 4096}, {tokens, 4096, 1024}},
            multiprocessors);
}

// One run of each kernel, for a profiler.
void profile(int multiprocessors) {
  for (const Shape& shape : {Shape{65536, 1024, 1024}, Shape{65536, 1024, 4096}, wgrad(1024, 1024, 65536)}) {
    const Problem p(shape, multiprocessors);
    run_block_gemm(p.gemm(), multiprocessors, nullptr);
    check(cudaDeviceSynchronize(), "profiling");
  }
}

// Every shape in every form; the small ones first.
bool check_all(int multiprocessors, bool small) {
  bool ok = true;
  std::vector<Shape> extents{{16, 16, 16},     {1, 8, 16},        {128, 256, 128},    {130, 264, 144},
                             {257, 512, 1024}, {512, 136, 400},   {300, 1000, 96},    {1024, 768, 640},
                             {64, 64, 8192},   {264, 1000, 2064}, {3000, 1000, 8208}, {4900, 904, 4112}};
  if (!small) {
    extents.insert(extents.end(), {{4096, 1024, 1024},
                                   {2064, 3088, 912},
                                   {1024, 1024, 16384},
                                   {3072, 1024, 8208},
                                   {65536, 1024, 1024},
                                   {4096, 1024, 65536},
                                   {3072, 1024, 65536},
                                   {1024, 1024, 65536}});
  }
  for (Shape shape : extents) {
    for (const Format out : {Format::bf16, Format::f32}) {
      for (const bool bias : {false, true}) {
        shape.out = out;
        shape.bias = bias;
        shape.store = out == Format::f32 && !bias ? Store::add : Store::replace;
        ok = check_shape(shape, multiprocessors) && ok;
      }
    }
  }
  return ok;
}

}  // namespace
}  // namespace quaver::cuda

int main(int count, char** arguments) {
  using namespace quaver::cuda;
  const std::string what = count > 1 ? arguments[1] : "";
  try {
    int multiprocessors = 0;
    check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, 0), "asking the GPU");
    bool ok = true;
    if (what == "profile") return profile(multiprocessors), 0;
    const bool checks = what != "time" && what != "roles" && what != "wgrad";
    if (checks) ok = check_all(multiprocessors, what == "small");
    if (checks) std::printf("%s\n", ok ? "all results agree" : "RESULTS DIFFER");
    if (what != "check" && what != "small" && what != "wgrad") time_all(multiprocessors, what != "roles");
    if (what != "check" && what != "small") time_wgrad(multiprocessors, what != "roles");
    return ok ? 0 : 1;
  } catch (const quaver::Error& error) {
    std::printf("error: %s\n", error.what());
    return 1;
  }
}
