#include <limits>

#include "engine/cuda/optimizer/muon.h"
#include "engine/cuda/optimizer/optimizer.h"
#include "engine/cuda/optimizer/weight_update.cuh"

namespace quaver::cuda {

namespace {

struct MomentumArguments {
  float limit;  // of a gradient's magnitude; infinity: none
  float beta;
  const float* gradient_factor;
  const GradientSummary* summary;
  const void* gradient;
  StoredMoment momentum;
  float* tensor_scale;  // of the momentum, set to one; null: none
  Segments segments;
  float* update;
};

template <Format Moment>
__device__ void add_segment(const MomentumArguments& arguments, Size segment, float gradient_factor) {
  const QuadPlace place = place_of(arguments.segments, segment);
  const Quad<Format::f32> gradients = load_quad<Format::f32>(arguments.gradient, place);
  const Quad<Moment> moments = load_quad<Moment>(arguments.momentum.codes, place);
  const float beta = arguments.beta;
  float m[quad];
  float update[quad];
  decode_moment<Moment>(moments, scale_of_block<Moment>(arguments.momentum, segment), m);
#pragma unroll
  for (int i = 0; i < quad; ++i) {
    float g = decode_stored<Format::f32>(gradients.code[i]) * gradient_factor;
    g = g > arguments.limit ? arguments.limit : g;
    g = g < -arguments.limit ? -arguments.limit : g;
    m[i] = beta * m[i] + (1 - beta) * g;
    update[i] = (1 - beta) * g + beta * m[i];
  }
  store_moment<Moment>(arguments.momentum, m, place, segment);
  if (place.valid > 0) store_quad<Format::f32>(arguments.update, place, floats_of(update));
}

template <Format Moment>
__global__ void __launch_bounds__(update_threads) momentum_kernel(MomentumArguments arguments) {
  if (arguments.summary->skip != 0) return;
  const float gradient_factor = *arguments.gradient_factor;
  const Size first = static_cast<Size>(blockIdx.x) * update_warps + threadIdx.x / warp_size;
  const Size stride = static_cast<Size>(gridDim.x) * update_warps;
  for (Size segment = first; segment < arguments.segments.segments; segment += stride) {
    add_segment<Moment>(arguments, segment, gradient_factor);
  }
  if (blockIdx.x == 0 && threadIdx.x == 0 && arguments.tensor_scale != nullptr) *arguments.tensor_scale = 1;
}

void add_to_momentum(Gpu& gpu, const Muon& op, const View& update) {
  const Format format = op.momentum.spec.format;
  MomentumArguments arguments{};
  arguments.limit = op.value_limit > 0 ? op.value_limit : std::numeric_limits<float>::infinity();
  arguments.beta = op.beta;
  arguments.gradient_factor = op.gradient_factor;
  arguments.summary = op.summary;
  arguments.gradient = op.gradient.data;
  arguments.momentum = stored_moment(op.momentum, op.random, 1);
  if (format != Format::f32) arguments.tensor_scale = op.momentum.tensor_scale;
  arguments.segments = segments_of(op.weight, format);
  arguments.segments.aligned = arguments.segments.aligned && aligned16(op.gradient.data) &&
                               aligned16(op.momentum.codes) && aligned16(update.data);
  arguments.update = update.f32();
  const auto blocks = static_cast<unsigned>(arguments.segments.blocks());
  switch (format) {
    case Format::f32:
      momentum_kernel<Format::f32><<<blocks, update_threads, 0, gpu.stream()>>>(arguments);
      break;
    case Format::bf16:
      momentum_kernel<Format::bf16><<<blocks, update_threads, 0, gpu.stream()>>>(arguments);
      break;
    default:
      momentum_kernel<Format::e4m3><<<blocks, update_threads, 0, gpu.stream()>>>(arguments);
  }
  check_launch("muon, momentum");
}

struct MoveArguments {
  float learning_rate;
  float decay;
  const GradientSummary* summary;
  const float* update;
  StoredWeight weight;
  Segments segments;
  UpdateStatistics* parts;  // one per block; null: not wanted
};

template <Format Weight>
__global__ void __launch_bounds__(update_threads) move_kernel(MoveArguments arguments) {
  if (arguments.summary->skip != 0) return;
  UpdateStatistics statistics{};
  const Size first = static_cast<Size>(blockIdx.x) * update_warps + threadIdx.x / warp_size;
  const Size stride = static_cast<Size>(gridDim.x) * update_warps;
  for (Size segment = first; segment < arguments.segments.segments; segment += stride) {
    const QuadPlace place = place_of(arguments.segments, segment);
    float before[quad];
    float after[quad];
    float update[quad];
    decode_moment<Weight>(load_quad<Weight>(arguments.weight.data, place), 1.0F, before);
    decode_moment<Format::f32>(load_quad<Format::f32>(arguments.update, place), 1.0F, update);
#pragma unroll
    for (int i = 0; i < quad; ++i) {
      after[i] = before[i] - (arguments.decay * before[i] + arguments.learning_rate * update[i]);
    }
    store_weights<Weight>(arguments.weight, place, after);
    if (arguments.parts != nullptr) compare(arguments.decay, before, update, after, place.valid, statistics);
  }
  if (arguments.parts == nullptr) return;
  statistics = sum_over_update_block(statistics);
  if (threadIdx.x == 0) arguments.parts[blockIdx.x] = statistics;
}

void move_weight(Gpu& gpu, const Muon& op, const View& update) {
  MoveArguments arguments{};
  arguments.learning_rate = op.learning_rate;
  arguments.decay = op.decay;
  arguments.summary = op.summary;
  arguments.update = update.f32();
  arguments.weight = {op.weight.data, op.rounding, op.random};
  arguments.segments = segments_of(op.weight, Format::f32);
  arguments.segments.aligned = aligned16(op.weight.data) && aligned16(update.data);
  const Size blocks = arguments.segments.blocks();
  if (op.statistics != nullptr) {
    arguments.parts = blocks == 1 ? op.statistics : gpu.workspace<UpdateStatistics>(Slot::sums, blocks);
  }
  if (op.weight.format == Format::f32) {
    move_kernel<Format::f32><<<static_cast<unsigned>(blocks), update_threads, 0, gpu.stream()>>>(arguments);
  } else {
    move_kernel<Format::bf16><<<static_cast<unsigned>(blocks), update_threads, 0, gpu.stream()>>>(arguments);
  }
  check_launch("muon");
  if (op.statistics == nullptr || blocks == 1) return;
  sum_statistics(gpu, {arguments.parts, static_cast<std::size_t>(blocks)}, op.summary, op.statistics);
}

}  // namespace

// A skipped step orthogonalizes what the workspace holds, and moves nothing.
void muon(Gpu& gpu, Gemms& gemms, const Muon& op) {
  if (op.weight.count() == 0) return;
  const View update{gpu.workspace<float>(Slot::large, op.weight.count()), Format::f32, op.weight.rows, op.weight.cols};
  add_to_momentum(gpu, op, update);
  for_each_projection(op, update, [&](const Orthogonalize& part) { orthogonalize(gpu, gemms, part); });
  move_weight(gpu, op, update);
}

}  // namespace quaver::cuda
