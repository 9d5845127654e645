// How fast casts are, beside memcpy: one thread, buffers larger than the caches. Bytes are those of the f32 side, so
// that "x memcpy" compares the floats a cast reads (or a decode writes) with the floats a plain copy moves.
#include <algorithm>
#include <benchmark/benchmark.h>
#include <cstring>
#include <ctime>
#include <vector>

#include "formats/quantize.h"

namespace quaver {
namespace {

constexpr Size rows = 8192;
constexpr Size cols = 4096;
constexpr Size count = rows * cols;
constexpr RandomKey key{1, 2, 3};

const std::vector<float>& source() {
  static const std::vector<float> x = [] {
    std::vector<float> values(static_cast<std::size_t>(count));
    random_normals(key, 0, values.data(), Size{1} << 20);
    for (Size i = Size{1} << 20; i < count; ++i) values[i] = values[i & ((Size{1} << 20) - 1)];
    return values;
  }();
  return x;
}

std::vector<float>& target() {
  static std::vector<float> y(static_cast<std::size_t>(count), 1.0F);
  return y;
}

// Bytes a second of a plain copy, measured once in this very run. Processor time, as the benchmarks report, so that
// other programs on the machine count against neither.
double memcpy_speed() {
  static const double speed = [] {
    double best = 0;
    for (int i = 0; i < 9; ++i) {
      const std::clock_t start = std::clock();
      std::memcpy(target().data(), source().data(), count * sizeof(float));
      benchmark::DoNotOptimize(target().data());
      benchmark::ClobberMemory();
      const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      best = std::max(best, static_cast<double>(count * sizeof(float)) / seconds);
    }
    return best;
  }();
  return speed;
}

void report(benchmark::State& state, Size elements = count) {
  const auto bytes = static_cast<double>(elements) * sizeof(float) * static_cast<double>(state.iterations());
  state.SetBytesProcessed(static_cast<std::int64_t>(bytes));
  state.counters["x memcpy"] = benchmark::Counter(bytes / memcpy_speed(), benchmark::Counter::kIsRate);
}

struct Codes {
  explicit Codes(const QuantSpec& spec) {
    matrix.spec = spec;
    matrix.rows = rows;
    matrix.cols = cols;
    bytes.resize(static_cast<std::size_t>(count * 4));
    scales.resize(static_cast<std::size_t>(count / 16));
    matrix.codes = bytes.data();
    matrix.block_scales = scales.data();
    matrix.tensor_scale = &tensor_scale;
  }
  std::vector<std::byte> bytes;
  std::vector<float> scales;
  float tensor_scale = 1;
  CodeMatrix matrix;
};

void run_tiles(benchmark::State& state, const QuantSpec& spec, Side side, Detail detail) {
  Codes codes(spec);
  if (side == Side::columns) std::swap(codes.matrix.rows, codes.matrix.cols);
  prepare_scales({source().data(), rows, cols}, {.side = side, .given_scale = 1.0F, .random = key}, codes.matrix);
  for (auto _ : state) {
    CastStatistics stats;
    for (Size first = 0; first < rows; first += tile_rows) {
      quantize_tile({source().data() + first * cols, cols, first, tile_rows},
                    {.side = side, .random = key, .detail = detail}, codes.matrix, stats);
    }
    benchmark::DoNotOptimize(stats);
  }
  report(state);
}

QuantSpec tensor_spec(Format format) { return {.format = format, .policy = ScalePolicy::current}; }

QuantSpec block_spec(Format format, Block block, ScaleFormat scale) {
  return {.format = format, .block = block, .scale = scale, .policy = ScalePolicy::current};
}

QuantSpec stochastic(QuantSpec spec) {
  spec.rounding = Rounding::stochastic;
  return spec;
}

QuantSpec rotated(QuantSpec spec) {
  spec.rotation = Rotation::hadamard;
  return spec;
}

void copy(benchmark::State& state) {
  for (auto _ : state) {
    std::memcpy(target().data(), source().data(), count * sizeof(float));
    benchmark::DoNotOptimize(target().data());
    benchmark::ClobberMemory();
  }
  report(state);
}

void find_amax(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(amax(source().data(), count));
  report(state);
}

void encode_plain(benchmark::State& state, Format format) {
  std::vector<std::byte> codes(static_cast<std::size_t>(count * 4));
  for (auto _ : state) {
    encode_array(format, source().data(), 1.0F, count, codes.data());
    benchmark::ClobberMemory();
  }
  report(state);
}

void decode_plain(benchmark::State& state, Format format) {
  std::vector<std::byte> codes(static_cast<std::size_t>(count * 4));
  encode_array(format, source().data(), 1.0F, count, codes.data());
  for (auto _ : state) {
    decode_array(format, codes.data(), 0.5F, count, target().data());
    benchmark::ClobberMemory();
  }
  report(state);
}

void decode_matrix(benchmark::State& state, const QuantSpec& spec) {
  Codes codes(spec);
  quantize({source().data(), rows, cols},
           {.side = Side::rows, .given_scale = 1.0F, .random = key, .detail = Detail::counts}, codes.matrix);
  for (auto _ : state) {
    decode_rows(codes.matrix, 0, rows, target().data(), cols);
    benchmark::ClobberMemory();
  }
  report(state);
}

void draw_words(benchmark::State& state) {
  std::vector<std::uint32_t> words(4096);
  std::uint64_t first = 0;
  for (auto _ : state) {
    random_words(key, first, words.data(), 4096);
    first += 4096;
    benchmark::ClobberMemory();
  }
  report(state, 4096);
}

const QuantSpec block128 = block_spec(Format::e4m3, block::b1x128, ScaleFormat::f32);
const QuantSpec square128 = block_spec(Format::e4m3, block::b128x128, ScaleFormat::f32);
const QuantSpec row = block_spec(Format::e4m3, block::row, ScaleFormat::f32);
const QuantSpec mxfp8 = block_spec(Format::e4m3, block::b1x32, ScaleFormat::e8m0);
const QuantSpec mxfp4 = block_spec(Format::e2m1, block::b1x32, ScaleFormat::e8m0);
const QuantSpec nvfp4 = block_spec(Format::e2m1, block::b1x16, ScaleFormat::e4m3);
const QuantSpec square16 = block_spec(Format::e2m1, block::b16x16, ScaleFormat::e4m3);

BENCHMARK(copy);
BENCHMARK(find_amax);
BENCHMARK_CAPTURE(run_tiles, e4m3_tensor_counts, tensor_spec(Format::e4m3), Side::rows, Detail::counts);
BENCHMARK_CAPTURE(run_tiles, e4m3_tensor_full, tensor_spec(Format::e4m3), Side::rows, Detail::full);
BENCHMARK_CAPTURE(run_tiles, e4m3_tensor_columns, tensor_spec(Format::e4m3), Side::columns, Detail::counts);
BENCHMARK_CAPTURE(run_tiles, e4m3_tensor_stochastic, stochastic(tensor_spec(Format::e4m3)), Side::rows, Detail::counts);
BENCHMARK_CAPTURE(run_tiles, e5m2_tensor_counts, tensor_spec(Format::e5m2), Side::rows, Detail::counts);
BENCHMARK_CAPTURE(run_tiles, e5m2_tensor_full, tensor_spec(Format::e5m2), Side::rows, Detail::full);
BENCHMARK_CAPTURE(run_tiles, e4m3_row, row, Side::rows, Detail::counts);
BENCHMARK_CAPTURE(run_tiles, e4m3_1x128, block128, Side::rows, Detail::counts);
BENCHMARK_CAPTURE(run_tiles, e4m3_1x128_columns, block128, Side::columns, Detail::counts);
BENCHMARK_CAPTURE(run_tiles, e4m3_128x128, square128, Side::rows, Detail::counts);
BENCHMARK_CAPTURE(run_tiles, mxfp8, mxfp8, Side::rows, Detail::counts);
BENCHMARK_CAPTURE(run_tiles, mxfp8_columns, mxfp8, Side::columns, Detail::counts);
BENCHMARK_CAPTURE(run_tiles, mxfp4, mxfp4, Side::rows, Detail::counts);
BENCHMARK_CAPTURE(run_tiles, nvfp4, nvfp4, Side::rows, Detail::counts);
BENCHMARK_CAPTURE(run_tiles, nvfp4_full, nvfp4, Side::rows, Detail::full);
BENCHMARK_CAPTURE(run_tiles, nvfp4_16x16, square16, Side::rows, Detail::counts);
BENCHMARK_CAPTURE(run_tiles, nvfp4_stochastic_hadamard_columns, rotated(stochastic(nvfp4)), Side::columns,
                  Detail::counts);
BENCHMARK_CAPTURE(run_tiles, bf16_counts, QuantSpec{.format = Format::bf16}, Side::rows, Detail::counts);
BENCHMARK_CAPTURE(encode_plain, bf16, Format::bf16);
BENCHMARK_CAPTURE(encode_plain, f16, Format::f16);
BENCHMARK_CAPTURE(encode_plain, e4m3, Format::e4m3);
BENCHMARK_CAPTURE(decode_plain, bf16, Format::bf16);
BENCHMARK_CAPTURE(decode_plain, f16, Format::f16);
BENCHMARK_CAPTURE(decode_plain, e4m3, Format::e4m3);
BENCHMARK_CAPTURE(decode_plain, e5m2, Format::e5m2);
BENCHMARK_CAPTURE(decode_plain, e2m1, Format::e2m1);
BENCHMARK_CAPTURE(decode_matrix, mxfp8, mxfp8);
BENCHMARK_CAPTURE(decode_matrix, nvfp4, nvfp4);
BENCHMARK(draw_words);

}  // namespace
}  // namespace quaver

BENCHMARK_MAIN();
