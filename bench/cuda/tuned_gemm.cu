// GEMMs of linear layers by cuBLASLt alone, tuned by hand: every algorithm that it proposes is timed, and the best is
// timed again. What `quaver bench` says of the same GEMMs is compared with it (bench/rivals/tuned_gemm.py). One line of
// JSON each.
//   bench_tuned_gemm TOKENS IN OUT [IN OUT …]
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <string>
#include <vector>

namespace {

constexpr std::size_t workspace_bytes = std::size_t{64} << 20;
constexpr int most_candidates = 128;
constexpr int trial_runs = 5;
constexpr int final_runs = 25;

void require(bool good, const std::string& what) {
  if (good) return;
  std::fprintf(stderr, "bench_tuned_gemm: %s failed\n", what.c_str());
  std::exit(1);
}
void check(cudaError_t status, const char* what) {
  require(status == cudaSuccess, what + std::string(": ") + cudaGetErrorString(status));
}
void check(cublasStatus_t status, const char* what) {
  require(status == CUBLAS_STATUS_SUCCESS, what + std::string(": ") + cublasLtGetStatusName(status));
}

void* allocate(std::size_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes), "allocating");
  return memory;
}

__device__ float uniform(std::uint64_t x) {
  x = (x ^ (x >> 31)) * 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 29)) * 0xBF58476D1CE4E5B9ULL;
  return (static_cast<std::uint32_t>(x >> 32) + 0.5F) * 0x1p-32F;
}
__device__ float normal(std::uint64_t x) { return sqrtf(-2 * logf(uniform(2 * x))) * cospif(2 * uniform(2 * x + 1)); }

__global__ void fill(void* out, cudaDataType_t type, std::size_t count, std::uint64_t seed) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float value = normal(seed + i);
  if (type == CUDA_R_16BF) {
    static_cast<__nv_bfloat16*>(out)[i] = __float2bfloat16(value);
  } else {  // as a scale that fits leaves it
    const bool e5m2 = type == CUDA_R_8F_E5M2;
    static_cast<std::uint8_t*>(out)[i] =
        __nv_cvt_float_to_fp8(value * (e5m2 ? 8192.0F : 96.0F), __NV_SATFINITE, e5m2 ? __NV_E5M2 : __NV_E4M3);
  }
}

// In cuBLASLt's columns: out[m × n] (+)= op(left) · op(right).
struct Role {
  const char* name;
  std::int64_t m, n, k;
  cublasOperation_t left, right;
  cudaDataType_t left_type, right_type, out_type;
  bool accumulates;
};

std::array<Role, 3> roles_in(bool fp8, std::int64_t tokens, std::int64_t in, std::int64_t out) {
  const cudaDataType_t forward = fp8 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
  const cudaDataType_t gradient = fp8 ? CUDA_R_8F_E5M2 : CUDA_R_16BF;
  // FP8 is contiguous along the sum: both sides of it are stored that way.
  const cublasOperation_t dgrad_left = fp8 ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t wgrad_left = fp8 ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t wgrad_right = fp8 ? CUBLAS_OP_N : CUBLAS_OP_T;
  return {{{"fprop", out, tokens, in, CUBLAS_OP_T, CUBLAS_OP_N, forward, forward, CUDA_R_16BF, false},
           {"dgrad", in, tokens, out, dgrad_left, CUBLAS_OP_N, forward, gradient, CUDA_R_16BF, false},
           {"wgrad", in, out, tokens, wgrad_left, wgrad_right, forward, gradient, CUDA_R_32F, true}}};
}

std::size_t bytes_of(cudaDataType_t type) { return type == CUDA_R_32F ? 4 : type == CUDA_R_16BF ? 2 : 1; }

class Product {
 public:
  Product(cublasLtHandle_t library, const Role& role, bool fp8) : library_(library), role_(role) {
    check(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a GEMM");
    set(CUBLASLT_MATMUL_DESC_TRANSA, role.left);
    set(CUBLASLT_MATMUL_DESC_TRANSB, role.right);
    left_ = make(role.left_type, role.left == CUBLAS_OP_N ? role.m : role.k, role.left == CUBLAS_OP_N ? role.k : role.m,
                 left_layout_);
    right_ = make(role.right_type, role.right == CUBLAS_OP_N ? role.k : role.n,
                  role.right == CUBLAS_OP_N ? role.n : role.k, right_layout_);
    check(cublasLtMatrixLayoutCreate(&out_layout_, role.out_type, role.m, role.n, role.m), "describing a matrix");
    out_ = allocate(role.m * role.n * bytes_of(role.out_type));
    check(cudaMemset(out_, 0, role.m * role.n * bytes_of(role.out_type)), "clearing");
    workspace_ = allocate(workspace_bytes);
    if (!fp8) return;
    scale_ = allocate(16);
    const float one = 1;
    check(cudaMemcpy(scale_, &one, sizeof(one), cudaMemcpyHostToDevice), "copying a scale");
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, scale_);
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, scale_);
    set(CUBLASLT_MATMUL_DESC_FAST_ACCUM, static_cast<std::int8_t>(!role.accumulates));
  }
  ~Product() {
    for (void* memory : {left_, right_, out_, workspace_, scale_}) cudaFree(memory);
    for (cublasLtMatrixLayout_t layout : {left_layout_, right_layout_, out_layout_})
      cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(operation_);
  }
  Product(const Product&) = delete;
  Product& operator=(const Product&) = delete;

  std::vector<cublasLtMatmulHeuristicResult_t> candidates() const {
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "asking for algorithms");
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                                               sizeof(workspace_bytes)),
          "asking for algorithms");
    std::vector<cublasLtMatmulHeuristicResult_t> found(most_candidates);
    int count = 0;
    check(cublasLtMatmulAlgoGetHeuristic(library_, operation_, left_layout_, right_layout_, out_layout_, out_layout_,
                                         preference, most_candidates, found.data(), &count),
          "asking for algorithms");
    cublasLtMatmulPreferenceDestroy(preference);
    found.resize(static_cast<std::size_t>(count));
    return found;
  }

  // Median of runs one after another; negative where the algorithm does not run.
  float milliseconds(const cublasLtMatmulHeuristicResult_t& candidate, int runs) const {
    std::vector<cudaEvent_t> events(static_cast<std::size_t>(runs) + 1);
    for (cudaEvent_t& event : events) check(cudaEventCreate(&event), "making a timer");
    bool good = run(candidate) == CUBLAS_STATUS_SUCCESS;
    check(cudaEventRecord(events[0]), "timing");
    for (int i = 1; good && i <= runs; ++i) {
      good = run(candidate) == CUBLAS_STATUS_SUCCESS;
      check(cudaEventRecord(events[static_cast<std::size_t>(i)]), "timing");
    }
    check(cudaDeviceSynchronize(), "multiplying");
    std::vector<float> times(static_cast<std::size_t>(runs));
    for (std::size_t i = 0; good && i < times.size(); ++i) {
      check(cudaEventElapsedTime(&times[i], events[i], events[i + 1]), "timing");
    }
    for (cudaEvent_t event : events) cudaEventDestroy(event);
    std::sort(times.begin(), times.end());
    return good ? times[times.size() / 2] : -1;
  }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    check(cublasLtMatmulDescSetAttribute(operation_, attribute, &value, sizeof(value)), "describing a GEMM");
  }
  static void* make(cudaDataType_t type, std::int64_t rows, std::int64_t cols, cublasLtMatrixLayout_t& layout) {
    check(cublasLtMatrixLayoutCreate(&layout, type, rows, cols, rows), "describing a matrix");
    const std::size_t count = rows * cols;
    void* memory = allocate(count * bytes_of(type));
    fill<<<static_cast<unsigned>((count + 255) / 256), 256>>>(memory, type, count, count);
    check(cudaGetLastError(), "filling");
    return memory;
  }
  cublasStatus_t run(const cublasLtMatmulHeuristicResult_t& candidate) const {
    const float alpha = 1;
    const float beta = role_.accumulates ? 1 : 0;
    return cublasLtMatmul(library_, operation_, &alpha, left_, left_layout_, right_, right_layout_, &beta, out_,
                          out_layout_, out_, out_layout_, &candidate.algo, workspace_, workspace_bytes, nullptr);
  }

  cublasLtHandle_t library_;
  Role role_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t left_layout_ = nullptr, right_layout_ = nullptr, out_layout_ = nullptr;
  void *left_ = nullptr, *right_ = nullptr, *out_ = nullptr, *workspace_ = nullptr, *scale_ = nullptr;
};

struct Trial {
  float ms;
  const cublasLtMatmulHeuristicResult_t* candidate;
};

void tune(cublasLtHandle_t library, const Role& role, bool fp8, std::int64_t in, std::int64_t out) {
  const Product product(library, role, fp8);
  const auto candidates = product.candidates();
  std::vector<Trial> trials;
  for (const cublasLtMatmulHeuristicResult_t& candidate : candidates) {
    const float time = product.milliseconds(candidate, trial_runs);
    if (time > 0) trials.push_back({time, &candidate});
  }
  require(!trials.empty(), "finding an algorithm");
  std::sort(trials.begin(), trials.end(), [](const Trial& a, const Trial& b) { return a.ms < b.ms; });
  float best = product.milliseconds(*trials[0].candidate, final_runs);
  for (std::size_t i = 1; i < std::min<std::size_t>(3, trials.size()); ++i) {
    best = std::min(best, product.milliseconds(*trials[i].candidate, final_runs));
  }
  const float first = product.milliseconds(candidates[0], final_runs);
  const double flops = 2.0 * static_cast<double>(role.m) * static_cast<double>(role.n) * static_cast<double>(role.k);
  std::printf(R"({"in": %lld, "out": %lld, "part": "%s", "format": "%s", "algorithms": %zu, "ms": %.4f, )"
              R"("first_ms": %.4f, "tflops": %.1f})"
              "\n",
              static_cast<long long>(in), static_cast<long long>(out), role.name, fp8 ? "fp8" : "bf16", trials.size(),
              best, first, flops / best / 1e9);
  std::fflush(stdout);
}

}  // namespace

int main(int count, char** words) {
  if (count < 4 || count % 2 != 0) {
    std::fprintf(stderr, "usage: bench_tuned_gemm TOKENS IN OUT [IN OUT ...]\n");
    return 2;
  }
  cublasLtHandle_t library = nullptr;
  check(cublasLtCreate(&library), "opening cuBLASLt");
  const std::int64_t tokens = std::atoll(words[1]);
  for (int i = 2; i + 1 < count; i += 2) {
    const std::int64_t in = std::atoll(words[i]);
    const std::int64_t out = std::atoll(words[i + 1]);
    for (const bool fp8 : {false, true}) {
      for (const Role& role : roles_in(fp8, tokens, in, out)) tune(library, role, fp8, in, out);
    }
  }
  cublasLtDestroy(library);
  return 0;
}
