// Two engines side by side: the CPU's, which is the reference, and the GPU's, which must agree with it. Matrices,
// statistics and quantized tensors exist on both, filled with the same values.
//   QUAVER_GPU_TESTS_ENGINE=cpu puts a second CPU engine in the GPU's place: a test of these tests.
#pragma once

#include <cctype>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "engine/cuda_module.h"
#include "engine/support.h"

namespace quaver {

// For the messages of tests that run with several formats; beside the type, where googletest looks.
inline void PrintTo(Format format, std::ostream* out) { *out << info(format).name; }

}  // namespace quaver

namespace quaver::test {

enum class On : std::uint8_t { cpu, gpu };

struct Pair {
  Format high_precision;  // of the values that high-precision matrices hold, whatever stores them
  std::unique_ptr<Engine> cpu;
  std::unique_ptr<Engine> gpu;

  // Runs on each engine the operation that make(On) gives for it.
  template <class Make>
  void run(const Make& make) {
    cpu->run(make(On::cpu));
    gpu->run(make(On::gpu));
  }
};

// Why GPU tests cannot run here; empty: they can.
const std::string& why_no_gpu();

// Whether a CPU engine stands in for the GPU's.
bool is_rehearsal();

// Whether tests shall do with fewer shapes and steps: a sanitizer makes kernels hundreds of times slower.
bool is_brief();

// A new engine of the CPU, which says what is right.
std::unique_ptr<Engine> make_reference_engine();

// A new engine of the GPU, or of what stands in for it.
std::unique_ptr<Engine> make_tested_engine(const CudaOptions& options);
inline std::unique_ptr<Engine> make_tested_engine(Format high_precision) {
  return make_tested_engine(CudaOptions{.high_precision = high_precision});
}

enum class AttentionBy : std::uint8_t { library, own };
inline void PrintTo(AttentionBy by, std::ostream* out) { *out << (by == AttentionBy::own ? "own" : "library"); }

// Made once per process. tf32: matrices in FP32, which attention rounds.
Pair& pair_of(Format format, AttentionBy attention = AttentionBy::library);

// Skipped, with the reason, where there is no GPU.
class GpuTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!why_no_gpu().empty()) GTEST_SKIP() << why_no_gpu();
  }
};

// Run with each high-precision format.
class HighPrecisionTest : public GpuTest, public testing::WithParamInterface<Format> {
 protected:
  Pair& pair() const { return pair_of(GetParam()); }
  bool exact() const { return GetParam() == Format::f32; }
};

// As googletest wants names of cases.
inline std::string name_of_case(Format format) {
  std::string name(info(format).name);
  name.front() = static_cast<char>(std::toupper(name.front()));
  return name;
}

inline std::string high_precision_name(const testing::TestParamInfo<Format>& instance) {
  return name_of_case(instance.param);
}

#define QUAVER_HIGH_PRECISION_FORMATS(Suite) \
  INSTANTIATE_TEST_SUITE_P(Gpu, Suite, testing::Values(Format::f32, Format::bf16, Format::f16), high_precision_name)

// Engine memory with a margin on both sides that nobody may write to.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Engine& engine, std::size_t bytes);

  std::byte* data() const { return memory_.get() + margin; }
  std::size_t bytes() const { return bytes_; }
  void fill(std::byte value);  // undefined contents, made visible
  void upload(const void* host);
  std::vector<std::byte> download() const;
  bool margins_are_intact() const;

 private:
  static constexpr std::size_t margin = 256;
  Engine* engine_ = nullptr;
  std::size_t bytes_ = 0;
  std::shared_ptr<std::byte> memory_;
};

// How a matrix is stored: as the engine's high-precision matrices are, or in one format on both engines.
enum class Kept : std::uint8_t { high_precision, f32, bf16 };

class Twin {
 public:
  Twin(Pair& pair, Matrix values, Kept kept = Kept::high_precision);
  Twin(Pair& pair, Size rows, Size cols, float fill, Kept kept = Kept::high_precision)
      : Twin(pair, Matrix(rows, cols, fill), kept) {}

  Size rows() const { return rows_; }
  Size cols() const { return cols_; }
  View cpu() { return {cpu_.data(), cpu_format_, rows_, cols_}; }
  View gpu() { return {gpu_.data(), gpu_format_, rows_, cols_}; }
  View on(On engine) { return engine == On::cpu ? cpu() : gpu(); }
  void set(const Matrix& values);  // on both; rounded to the high-precision format

  Matrix from_cpu() const;
  Matrix from_gpu() const;
  std::vector<std::byte> gpu_bytes() const { return gpu_.download(); }
  bool margins_are_intact() const { return gpu_.margins_are_intact(); }

 private:
  Size rows_;
  Size cols_;
  Kept kept_;
  Format held_;  // what values are rounded to
  Format cpu_format_;
  Format gpu_format_;
  std::vector<std::byte> cpu_;
  Buffer gpu_;
};

// A few plain values on both engines.
template <class T>
class Cells {
 public:
  Cells(Pair& pair, std::vector<T> values)
      : host_(std::move(values)), gpu_(*pair.gpu, std::max<std::size_t>(1, host_.size()) * sizeof(T)) {
    set(host_);
  }
  T* cpu() { return host_.data(); }
  T* gpu() { return reinterpret_cast<T*>(gpu_.data()); }
  T* on(On engine) { return engine == On::cpu ? cpu() : gpu(); }
  std::span<const T> span(On engine) { return {on(engine), host_.size()}; }
  const std::vector<T>& from_cpu() const { return host_; }
  std::vector<T> from_gpu() const {
    const std::vector<std::byte> bytes = gpu_.download();
    std::vector<T> values(host_.size());
    std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
    return values;
  }
  void set(std::vector<T> values) {
    host_ = std::move(values);
    gpu_.upload(host_.data());
  }

 private:
  std::vector<T> host_;
  Buffer gpu_;
};

// One side of a quantized tensor, brought to the host: a code for each element, and the scales.
struct HostSide {
  QuantSpec spec;
  Size rows = 0;
  Size cols = 0;
  std::vector<std::uint32_t> codes = {};
  std::vector<float> block_scales = {};
  float tensor_scale = 0;
  bool padding_is_clear = true;  // the half byte behind an odd row of FP4 codes, what lies between rows of FP8 codes

  float multiplier(Size r, Size c) const;
  double value(Size r, Size c) const;
  double step(Size r, Size c) const;  // distance of the element's code to the next
  HostSide transposed() const;
};
HostSide side_of(Engine& engine, const CodeMatrix& matrix);

struct TwinSite {
  float scale = 0;
  std::string name = "site/x";
  Sharing sharing = Sharing::apart;  // of the GPU's tensor
};

// A tensor in a site of each engine. The CPU's shares codes where that is exact, the GPU's never.
class TwinTensor {
 public:
  TwinTensor(Pair& pair, const SiteSpec& spec, Size rows, Size cols, Copies copies = Copies::both,
             const TwinSite& twin_site = {});
  ~TwinTensor();
  TwinTensor(const TwinTensor&) = delete;
  TwinTensor& operator=(const TwinTensor&) = delete;

  QuantizedTensor& cpu() { return cpu_; }
  QuantizedTensor& gpu() { return gpu_; }
  QuantizedTensor& on(On engine) { return engine == On::cpu ? cpu_ : gpu_; }
  Site& site(On engine) { return engine == On::cpu ? cpu_site_ : gpu_site_; }
  void set_scale(float scale) { cpu_site_.scale = gpu_site_.scale = scale; }

  // Has both producers add up columns, starting from `initial`.
  Twin& sum_columns(float initial);

  HostSide cpu_rows() const { return side_of(*pair_.cpu, cpu_.rows_matrix()); }
  HostSide gpu_rows() const { return side_of(*pair_.gpu, gpu_.rows_matrix()); }
  HostSide cpu_columns() const;  // its own, or the rows transposed
  HostSide gpu_columns() const;
  std::vector<std::byte> gpu_bytes() const;  // codes and scales that mean something, both sides
  bool margins_are_intact() const;

  // What the casts since the last call saw.
  CastStatistics take_cpu_seen();
  CastStatistics take_gpu_seen();

 private:
  Pair& pair_;
  Site cpu_site_;
  Site gpu_site_;
  std::vector<Buffer> memory_;
  std::vector<Buffer> gpu_memory_;
  std::unique_ptr<Twin> sums_;
  QuantizedTensor cpu_;
  QuantizedTensor gpu_;
};

// Normal numbers, others for each stream; quicker than random_matrix, which computes each anew.
Matrix normal_matrix(Size rows, Size cols, std::uint32_t stream, float std = 1, float mean = 0);

// Has `tensor` hold these values on both engines.
void store(Pair& pair, Twin& values, TwinTensor& tensor, const Casting& casting = {});

struct Shape {
  Size rows;
  Size cols;
};
std::string text_of(const Shape& shape);

inline constexpr Shape odd_shapes[] = {{1, 1}, {3, 5}, {17, 33}, {129, 257}, {64, 1000}};
inline constexpr Shape model_shapes[] = {{256, 512}, {512, 1024}, {96, 1536}, {64, 896}, {40, 4096}};
std::vector<Shape> all_shapes();

// Each, or when brief every fourth from the first on.
template <class T>
std::vector<T> some_of(const std::vector<T>& all) {
  std::vector<T> some;
  for (std::size_t i = 0; i < all.size(); i += is_brief() ? 4 : 1) some.push_back(all[i]);
  return some;
}

// These, or when brief the first two that are neither tiny nor large.
std::vector<Shape> shapes_of(std::vector<Shape> shapes);

// Whether a shape is small enough for every combination of options.
inline bool is_small(const Shape& shape) { return shape.rows * shape.cols < 40000; }

}  // namespace quaver::test
