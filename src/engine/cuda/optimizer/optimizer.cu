#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/cuda/device/vectors.cuh"
#include "engine/cuda/optimizer/optimizer.h"
#include "engine/cuda/optimizer/weight_update.cuh"

namespace quaver::cuda {

namespace {

constexpr int threads = update_threads;
constexpr int warps = update_warps;

// ---- gradients

__device__ float plus(float a, float b) { return a + b; }
__device__ float4 plus(const float4& a, const float4& b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }

// No __restrict__: the sum may be one of the parts.
template <class Vector>
__global__ void __launch_bounds__(threads)
    sum_in_order_kernel(const Vector* parts, Size rows, Size count, bool accumulate, Vector* sum) {
  const Size i = static_cast<Size>(blockIdx.x) * threads + threadIdx.x;
  if (i >= count) return;
  Vector total = accumulate ? sum[i] : parts[i];
  for (Size row = accumulate ? 0 : 1; row < rows; ++row) total = plus(total, parts[row * count + i]);
  sum[i] = total;
}

constexpr Size part_size = Size{1} << 15;
constexpr int clip_threads = 1024;

// FP32 squares overflow long before gradients do, so sums are kept in double.
__device__ void add_squares(const float4& x, GradientMeasure& sum) {
  const float values[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const double value = values[i];
    sum.square += value * value;
    sum.nonfinite += isfinite(values[i]) ? 0U : 1U;
  }
}

__global__ void __launch_bounds__(threads) sum_parts_kernel(const GradientPart* parts, GradientMeasure* sums) {
  const GradientPart part = parts[blockIdx.x];
  const int count = static_cast<int>(part.count);
  const int vectors = aligned16(part.data) ? count / 4 : 0;
  GradientMeasure sum{};
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < vectors; i += threads) {
    add_squares(reinterpret_cast<const float4*>(part.data)[i], sum);
  }
  for (int i = 4 * vectors + static_cast<int>(threadIdx.x); i < count; i += threads) {
    add_squares({part.data[i], 0, 0, 0}, sum);
  }
  sum.square = block_sum<threads>(sum.square);
  sum.nonfinite = block_sum<threads>(static_cast<unsigned long long>(sum.nonfinite));
  if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

struct Clipping {
  const GradientMeasure* measures;
  const Size* places;
  Size count;
  float unscale;
  Clip clip;
  float limit;
  float* factors;
  double* squares;  // one per gradient: its unscaled norm, squared
  GradientSummary* summary;
};

__device__ float clip_factor(double norm, float limit) {
  return norm > limit ? static_cast<float>(limit / (norm + 1e-6)) : 1.0F;
}

// Each warp has a gradient, and its lanes the parts.
__global__ void __launch_bounds__(threads)
    measure_kernel(const GradientSpan* spans, Size count, const GradientMeasure* sums, GradientMeasure* measures) {
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const Size i = static_cast<Size>(blockIdx.x) * warps + threadIdx.x / warp_size;
  if (i >= count) return;
  const GradientSpan span = spans[i];
  double square = 0;
  unsigned long long nonfinite = 0;
#pragma unroll 4
  for (Size part = lane; part < span.parts; part += warp_size) {
    const GradientMeasure& sum = sums[span.first + part];
    square += sum.square;
    nonfinite += sum.nonfinite;
  }
  square = warp_sum(square);
  nonfinite = warp_sum(nonfinite);
  if (lane == 0) measures[i] = {square / span.ratio2, nonfinite};
}

// One block.
__global__ void __launch_bounds__(clip_threads) clip_kernel(Clipping all) {
  unsigned long long nonfinite = 0;
  double total = 0;
  for (Size i = threadIdx.x; i < all.count; i += clip_threads) {
    const GradientMeasure measure = all.measures[all.places[i]];
    const double norm = sqrt(measure.square) * all.unscale;
    all.squares[i] = norm * norm;
    total += all.squares[i];
    nonfinite += measure.nonfinite;
  }
  nonfinite = block_sum<clip_threads>(nonfinite);
  const double norm = sqrt(block_sum<clip_threads>(total));
  if (threadIdx.x == 0) *all.summary = {norm, nonfinite, nonfinite};
  for (Size i = threadIdx.x; i < all.count; i += clip_threads) {
    float factor = all.unscale;
    if (all.clip == Clip::group_norm) factor *= clip_factor(sqrt(all.squares[i]), all.limit);
    if (all.clip == Clip::global_norm) factor *= clip_factor(norm, all.limit);
    all.factors[i] = factor;
  }
}

// The list on the device, copied where it differs from the one before.
template <class T>
void keep_list(Gpu& gpu, std::vector<T>&& list, std::vector<T>& kept, T*& device) {
  if (list == kept) return;
  if (gpu.capturing()) {
    throw Error("the list of gradients changed during the capture of a CUDA graph",
                "this is a defect: gradients must be measured once before the capture");
  }
  kept = std::move(list);
  gpu.synchronize();
  check(cudaFree(device), "freeing the list of gradients");
  device = nullptr;
  const std::size_t bytes = kept.size() * sizeof(T);
  check(cudaMalloc(reinterpret_cast<void**>(&device), std::max<std::size_t>(bytes, 1)),
        "allocating a list of gradients");
  check(cudaMemcpyAsync(device, kept.data(), bytes, cudaMemcpyHostToDevice, gpu.stream()),
        "copying the list of gradients");
}

// ---- update

struct UpdateArguments {
  AdamWCoefficients coefficients;
  const float* gradient_factor;
  const GradientSummary* summary;
  StoredWeight weight;
  const void* gradient;
  StoredMoment moment1;
  StoredMoment moment2_root;
  float* tensor_scales[2];  // of the moments, set to one; null: none
  Segments segments;
  UpdateStatistics* parts;  // one per block; null: not wanted
};

template <Format Weight, Format Moment>
__device__ void update_segment(const UpdateArguments& arguments, Size segment, float gradient_factor,
                               UpdateStatistics& statistics) {
  const QuadPlace place = place_of(arguments.segments, segment);
  const Quad<Format::f32> gradients = load_quad<Format::f32>(arguments.gradient, place);
  const Quad<Weight> weights = load_quad<Weight>(arguments.weight.data, place);
  const Quad<Moment> moments1 = load_quad<Moment>(arguments.moment1.codes, place);
  const Quad<Moment> moments2 = load_quad<Moment>(arguments.moment2_root.codes, place);
  const float scale2 = scale_of_block<Moment>(arguments.moment2_root, segment);
  float before[quad];
  float after[quad];
  float m[quad];
  float v_root[quad];
  decode_moment<Weight>(weights, 1.0F, before);
  decode_moment<Moment>(moments1, scale_of_block<Moment>(arguments.moment1, segment), m);
  decode_moment<Moment>(moments2, scale2, v_root);
#pragma unroll
  for (int i = 0; i < quad; ++i) {
    after[i] = before[i];
    v_root[i] = raised_from_zero<Moment>(v_root[i], scale2);
    const float gradient = decode_stored<Format::f32>(gradients.code[i]) * gradient_factor;
    update_element(arguments.coefficients, gradient, after[i], m[i], v_root[i]);
  }
  store_moment<Moment>(arguments.moment1, m, place, segment);
  store_moment<Moment>(arguments.moment2_root, v_root, place, segment);
  store_weights<Weight>(arguments.weight, place, after);
  if (arguments.parts != nullptr) compare(arguments.coefficients.decay, before, m, after, place.valid, statistics);
}

template <Format Weight, Format Moment>
__global__ void __launch_bounds__(threads, 4) adamw_kernel(UpdateArguments arguments) {
  if (arguments.summary->skip != 0) return;
  const float gradient_factor = *arguments.gradient_factor;
  UpdateStatistics statistics{};
  const Size first = static_cast<Size>(blockIdx.x) * warps + threadIdx.x / warp_size;
  for (Size segment = first; segment < arguments.segments.segments; segment += static_cast<Size>(gridDim.x) * warps) {
    update_segment<Weight, Moment>(arguments, segment, gradient_factor, statistics);
  }
  if (blockIdx.x == 0 && threadIdx.x < 2 && arguments.tensor_scales[threadIdx.x] != nullptr) {
    *arguments.tensor_scales[threadIdx.x] = 1;
  }
  if (arguments.parts == nullptr) return;
  statistics = sum_over_update_block(statistics);
  if (threadIdx.x == 0) arguments.parts[blockIdx.x] = statistics;
}

__global__ void __launch_bounds__(threads)
    sum_statistics_kernel(const UpdateStatistics* parts, int count, const GradientSummary* summary,
                          UpdateStatistics* out) {
  if (summary->skip != 0) return;
  UpdateStatistics sum{};
  for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) {
    sum.weight2 += parts[i].weight2;
    sum.update2 += parts[i].update2;
    sum.unmoved += parts[i].unmoved;
    sum.count += parts[i].count;
  }
  sum = sum_over_update_block(sum);
  if (threadIdx.x == 0) *out = sum;
}

UpdateArguments arguments_of(const AdamW& op) {
  UpdateArguments arguments{};
  arguments.coefficients = coefficients_of(op);
  arguments.gradient_factor = op.gradient_factor;
  arguments.summary = op.summary;
  arguments.weight = {op.weight.data, op.rounding, op.random};
  arguments.gradient = op.gradient.data;
  arguments.moment1 = stored_moment(op.moment1, op.random, 1);
  arguments.moment2_root = stored_moment(op.moment2_root, op.random, 2);
  if (op.moment1.spec.format != Format::f32) {
    arguments.tensor_scales[0] = op.moment1.tensor_scale;
    arguments.tensor_scales[1] = op.moment2_root.tensor_scale;
  }
  arguments.segments = segments_of(op.weight, op.moment1.spec.format);
  arguments.segments.aligned = arguments.segments.aligned && aligned16(op.weight.data) && aligned16(op.gradient.data) &&
                               aligned16(op.moment1.codes) && aligned16(op.moment2_root.codes);
  return arguments;
}

template <Format Weight>
void launch_adamw(Gpu& gpu, Format moment, unsigned blocks, const UpdateArguments& arguments) {
  switch (moment) {
    case Format::f32:
      adamw_kernel<Weight, Format::f32><<<blocks, threads, 0, gpu.stream()>>>(arguments);
      break;
    case Format::bf16:
      adamw_kernel<Weight, Format::bf16><<<blocks, threads, 0, gpu.stream()>>>(arguments);
      break;
    default:
      adamw_kernel<Weight, Format::e4m3><<<blocks, threads, 0, gpu.stream()>>>(arguments);
  }
  check_launch("adamw");
}

}  // namespace

void sum_in_order(Gpu& gpu, const SumInOrder& op) {
  const Size count = op.sum.count();
  if (count == 0 || op.parts.rows == 0) return;
  const auto launch = [&]<class Vector>(Vector, Size vectors) {
    sum_in_order_kernel<Vector><<<static_cast<unsigned>(ceil_div(vectors, threads)), threads, 0, gpu.stream()>>>(
        static_cast<const Vector*>(op.parts.data), op.parts.rows, vectors, op.accumulate,
        static_cast<Vector*>(op.sum.data));
  };
  if (count % 4 == 0 && aligned16(op.parts.data) && aligned16(op.sum.data)) {
    launch(float4{}, count / 4);
  } else {
    launch(0.0F, count);
  }
  check_launch("sum_in_order");
}

GradientMeter::~GradientMeter() {
  cudaFree(device_parts_);
  cudaFree(device_spans_);
  cudaFree(device_places_);
}

void GradientMeter::update_lists(Gpu& gpu, const MeasureGradients& op) {
  std::vector<GradientPart> parts;
  std::vector<GradientSpan> spans;
  for (std::size_t i = 0; i < op.gradients.size(); ++i) {
    const View& gradient = op.gradients[i];
    const double ratio = op.ratios[i];
    spans.push_back({static_cast<Size>(parts.size()), ceil_div(gradient.count(), part_size), ratio * ratio});
    for (Size first = 0; first < gradient.count(); first += part_size) {
      parts.push_back({gradient.f32() + first, std::min(part_size, gradient.count() - first)});
    }
  }
  keep_list(gpu, std::move(parts), parts_, device_parts_);
  keep_list(gpu, std::move(spans), spans_, device_spans_);
}

void GradientMeter::measure(Gpu& gpu, const MeasureGradients& op) {
  update_lists(gpu, op);
  const auto parts = static_cast<Size>(parts_.size());
  const auto count = static_cast<Size>(spans_.size());
  if (count == 0) return;
  auto* sums = gpu.workspace<GradientMeasure>(Slot::sums, parts);
  if (parts > 0) {
    sum_parts_kernel<<<static_cast<unsigned>(parts), threads, 0, gpu.stream()>>>(device_parts_, sums);
    check_launch("measure_gradients, parts");
  }
  measure_kernel<<<static_cast<unsigned>(ceil_div(count, warps)), threads, 0, gpu.stream()>>>(device_spans_, count,
                                                                                              sums, op.measures);
  check_launch("measure_gradients");
}

void GradientMeter::clip(Gpu& gpu, const ClipGradients& op) {
  keep_list(gpu, {op.places.begin(), op.places.end()}, places_, device_places_);
  const Clipping clipping{op.measures, device_places_, static_cast<Size>(op.places.size()),
                          op.unscale,  op.clip,        op.limit,
                          op.factors,  op.squares,     op.summary};
  clip_kernel<<<1, clip_threads, 0, gpu.stream()>>>(clipping);
  check_launch("clip_gradients");
}

void adamw(Gpu& gpu, const AdamW& op) {
  if (op.moment1.spec != op.moment2_root.spec) {
    throw Error("a parameter's two moments are stored differently", "this is a defect: both take optim.moments");
  }
  UpdateArguments arguments = arguments_of(op);
  if (arguments.segments.segments == 0) return;
  const Size blocks = arguments.segments.blocks();
  if (op.statistics != nullptr) {
    arguments.parts = blocks == 1 ? op.statistics : gpu.workspace<UpdateStatistics>(Slot::sums, blocks);
  }
  const Format moment = op.moment1.spec.format;
  if (op.weight.format == Format::f32) {
    launch_adamw<Format::f32>(gpu, moment, static_cast<unsigned>(blocks), arguments);
  } else {
    launch_adamw<Format::bf16>(gpu, moment, static_cast<unsigned>(blocks), arguments);
  }
  if (op.statistics == nullptr || blocks == 1) return;
  sum_statistics(gpu, {arguments.parts, static_cast<std::size_t>(blocks)}, op.summary, op.statistics);
}

void sum_statistics(Gpu& gpu, std::span<const UpdateStatistics> parts, const GradientSummary* summary,
                    UpdateStatistics* out) {
  sum_statistics_kernel<<<1, threads, 0, gpu.stream()>>>(parts.data(), static_cast<int>(parts.size()), summary, out);
  check_launch("statistics of an update");
}

}  // namespace quaver::cuda
