#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <vector>

#include "engine/cuda/attention/heads.h"
#include "engine/cuda/device/vectors.cuh"

namespace quaver::cuda {

namespace {

constexpr int threads = 256;
constexpr int warps = threads / warp_size;
constexpr Size block_tokens = 8;        // of a block that sums nothing
constexpr Size backward_blocks = 1024;  // at most, each with partial sums of the gains' gradients
constexpr Size largest_head = 2 * warp_size * group_size;

// A head is two parts, which rotary embedding pairs element by element. `lanes` neighboring lanes share a head: each
// holds eight elements of the first part and their partners in the second.
struct HeadShape {
  int heads;  // per token: queries, keys, then those that are only copied
  int queries;
  int rotated;  // queries and keys
  int size;
  int first;  // elements of the first part
  int lanes;
  bool aligned;
  Size width;  // of a row
  Size tokens;
  unsigned sequence;
  const std::int32_t* first_positions;   // position of each sequence's first token; null: 0
  Size tokens_per_block = block_tokens;  // in the backward pass
};

struct HeadNorm {
  const float* query_gain;
  const float* key_gain;
  float eps;
};

// One lane's share of a head.
struct Share {
  bool active;
  int head;
  Size offset;   // of the head in the matrix
  int first;     // index of its elements within the first part
  int valid[2];  // elements in each part
  unsigned position;
};

__device__ Share share_of(const HeadShape& shape, Size token_base, unsigned item, unsigned items) {
  Share share;
  share.active = item < items;
  const unsigned token = item / static_cast<unsigned>(shape.heads);
  const auto row = static_cast<unsigned>(token_base + token);
  share.head = static_cast<int>(item - token * static_cast<unsigned>(shape.heads));
  share.first = static_cast<int>(threadIdx.x) % shape.lanes * group_size;
  share.offset = (token_base + token) * shape.width + share.head * shape.size;
  share.position = row % shape.sequence;
  if (shape.first_positions != nullptr && share.active) share.position += shape.first_positions[row / shape.sequence];
  const int left = share.active ? group_size : 0;
  share.valid[0] = max(0, min(left, shape.first - share.first));
  share.valid[1] = max(0, min(left, shape.size - shape.first - share.first));
  return share;
}

template <class T>
__device__ void load_share(const T* matrix, const HeadShape& shape, const Share& share, float (&v)[2][group_size]) {
  const T* p = matrix + share.offset + share.first;
  const Group<T> a = load_group(p, share.valid[0], shape.aligned);
  const Group<T> b = load_group(p + shape.first, share.valid[1], shape.aligned);
  unpack(a, v[0]);
  unpack(b, v[1]);
}

template <class T>
__device__ void store_share(T* matrix, const HeadShape& shape, const Share& share, const float (&v)[2][group_size]) {
  T* p = matrix + share.offset + share.first;
  store8(p, share.valid[0], shape.aligned, v[0]);
  store8(p + shape.first, share.valid[1], shape.aligned, v[1]);
}

// Both parts of a [1 × size] vector.
__device__ void load_gain(const float* gain, const HeadShape& shape, const Share& share, float (&v)[2][group_size]) {
#pragma unroll
  for (int part = 0; part < 2; ++part) {
    const float* p = gain + part * shape.first + share.first;
#pragma unroll
    for (int i = 0; i < group_size; ++i) v[part][i] = i < share.valid[part] ? p[i] : 0.0F;
  }
}

// cos and sin for the elements of a share; elements beyond the head are not rotated.
__device__ void load_angles(const float2* table, const HeadShape& shape, const Share& share,
                            float2 (&angles)[group_size]) {
  const float2* p = table + static_cast<Size>(share.position) * shape.first + share.first;
  if (shape.aligned && share.valid[1] == group_size) {
#pragma unroll
    for (int i = 0; i < group_size / 2; ++i) {
      const float4 two = reinterpret_cast<const float4*>(p)[i];
      angles[2 * i] = {two.x, two.y};
      angles[2 * i + 1] = {two.z, two.w};
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < group_size; ++i) angles[i] = i < share.valid[1] ? p[i] : float2{1.0F, 0.0F};
}

// sign −1 is the inverse rotation.
__device__ void rotate(const float2* table, const HeadShape& shape, const Share& share, float sign,
                       float (&v)[2][group_size]) {
  float2 angles[group_size];
  load_angles(table, shape, share, angles);
#pragma unroll
  for (int i = 0; i < group_size; ++i) {
    const float a = v[0][i];
    const float b = v[1][i];
    const float sine = sign * angles[i].y;
    v[0][i] = a * angles[i].x - b * sine;
    v[1][i] = b * angles[i].x + a * sine;
  }
}

__device__ float dot(const float (&a)[2][group_size], const float (&b)[2][group_size]) {
  float sum = 0;
#pragma unroll
  for (int i = 0; i < group_size; ++i) sum += a[0][i] * b[0][i] + a[1][i] * b[1][i];
  return sum;
}

__device__ float inverse_rms(float squares, int size, float eps) {
  return 1.0F / sqrtf(squares / static_cast<float>(size) + eps);
}

template <class T, bool normed>
__global__ void __launch_bounds__(threads)
    heads_kernel(HeadShape shape, HeadNorm norm, const float2* __restrict__ table, const T* in, T* out) {
  const Size token_base = static_cast<Size>(blockIdx.x) * block_tokens;
  const auto items = static_cast<unsigned>(min(block_tokens, shape.tokens - token_base) * shape.heads);
  const unsigned stride = threads / shape.lanes;
  // All lanes run every iteration, because they take part in the warp's sums.
  for (unsigned base = 0; base < items; base += stride) {
    const Share share = share_of(shape, token_base, base + threadIdx.x / shape.lanes, items);
    float x[2][group_size];
    load_share(in, shape, share, x);
    const bool rotated = share.active && share.head < shape.rotated;
    if constexpr (normed) {
      const float r = inverse_rms(lanes_sum(dot(x, x), shape.lanes), shape.size, norm.eps);
      const float* gain = share.head < shape.queries ? norm.query_gain : norm.key_gain;
      if (rotated && gain != nullptr) {
        float g[2][group_size];
        load_gain(gain, shape, share, g);
#pragma unroll
        for (int i = 0; i < group_size; ++i) {
          x[0][i] *= r * g[0][i];
          x[1][i] *= r * g[1][i];
        }
      }
    }
    if (rotated && table != nullptr) rotate(table, shape, share, 1.0F, x);
    store_share(out, shape, share, x);
  }
}

// Sums of the gains' gradients over everything a block sees: [queries, keys][part][lanes · 8] for each block.
struct GainSums {
  float of[2][2][group_size] = {};
};

__host__ __device__ int sums_per_block(const HeadShape& shape) { return 4 * shape.lanes * group_size; }

__device__ void store_sums(const HeadShape& shape, GainSums& sums, float* out) {
  extern __shared__ float of_warp[];
  const int row = sums_per_block(shape);
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  const int warp = static_cast<int>(threadIdx.x) / warp_size;
#pragma unroll
  for (int kind = 0; kind < 2; ++kind) {
#pragma unroll
    for (int part = 0; part < 2; ++part) {
#pragma unroll
      for (int i = 0; i < group_size; ++i) {
        float sum = sums.of[kind][part][i];
        for (int step = shape.lanes; step < warp_size; step *= 2) sum += __shfl_xor_sync(0xFFFFFFFFU, sum, step);
        const int at = ((2 * kind + part) * shape.lanes + lane) * group_size + i;
        if (lane < shape.lanes) of_warp[warp * row + at] = sum;
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < row; i += threads) {
    float sum = 0;
    for (int w = 0; w < warps; ++w) sum += of_warp[w * row + i];
    out[i] = sum;
  }
}

// dx of y = x · r(x) · gain in place of dy, and the gain's gradient added to `sums`.
__device__ void norm_backward(const float (&x)[2][group_size], const float (&gain)[2][group_size], float r, float mean,
                              float (&dy)[2][group_size], float (&sums)[2][group_size]) {
#pragma unroll
  for (int part = 0; part < 2; ++part) {
#pragma unroll
    for (int i = 0; i < group_size; ++i) {
      const float y = x[part][i] * r;
      sums[part][i] += dy[part][i] * y;
      dy[part][i] = r * (dy[part][i] * gain[part][i] - y * mean);
    }
  }
}

template <class T, bool normed>
__global__ void __launch_bounds__(threads)
    heads_backward_kernel(HeadShape shape, HeadNorm norm, const float2* __restrict__ table, const T* __restrict__ in,
                          T* __restrict__ gradient, float* __restrict__ partials) {
  const Size token_base = static_cast<Size>(blockIdx.x) * shape.tokens_per_block;
  const auto items = static_cast<unsigned>(min(shape.tokens_per_block, shape.tokens - token_base) * shape.heads);
  const unsigned stride = threads / shape.lanes;
  GainSums sums;
  for (unsigned base = 0; base < items; base += stride) {
    const Share share = share_of(shape, token_base, base + threadIdx.x / shape.lanes, items);
    float dy[2][group_size];
    load_share(gradient, shape, share, dy);
    if constexpr (normed) {
      float x[2][group_size];
      load_share(in, shape, share, x);
      if (share.active && table != nullptr) rotate(table, shape, share, -1.0F, dy);
      const bool query = share.head < shape.queries;
      const float* gain = query ? norm.query_gain : norm.key_gain;
      float g[2][group_size] = {};
      if (gain != nullptr) load_gain(gain, shape, share, g);
      float along = 0;
#pragma unroll
      for (int i = 0; i < group_size; ++i) along += dy[0][i] * g[0][i] * x[0][i] + dy[1][i] * g[1][i] * x[1][i];
      const float r = inverse_rms(lanes_sum(dot(x, x), shape.lanes), shape.size, norm.eps);
      const float mean = lanes_sum(along, shape.lanes) * r / static_cast<float>(shape.size);
      if (share.active && gain != nullptr) {
        // Two calls, so that the sums' index is known when compiling and they stay in registers.
        if (query) {
          norm_backward(x, g, r, mean, dy, sums.of[0]);
        } else {
          norm_backward(x, g, r, mean, dy, sums.of[1]);
        }
      }
    } else if (share.active) {
      rotate(table, shape, share, -1.0F, dy);
    }
    store_share(gradient, shape, share, dy);
  }
  if constexpr (normed) store_sums(shape, sums, partials + static_cast<Size>(blockIdx.x) * sums_per_block(shape));
}

// One warp for each element of each gain: lanes take blocks in turn, in a fixed order.
__global__ void __launch_bounds__(threads)
    gain_gradients_kernel(HeadShape shape, const float* __restrict__ partials, int blocks, float factor,
                          float* query_gradient, float* key_gradient) {
  const int element = static_cast<int>(blockIdx.x) * warps + static_cast<int>(threadIdx.x) / warp_size;
  if (element >= 2 * shape.size) return;
  const int kind = element / shape.size;
  const int index = element % shape.size;
  const int part = index < shape.first ? 0 : 1;
  const Size at = (2 * kind + part) * shape.lanes * group_size + (index - part * shape.first);
  const int lane = static_cast<int>(threadIdx.x) % warp_size;
  float sum = 0;
#pragma unroll 4
  for (int block = lane; block < blocks; block += warp_size)
    sum += partials[static_cast<Size>(block) * sums_per_block(shape) + at];
  sum = warp_sum(sum);
  float* out = kind == 0 ? query_gradient : key_gradient;
  if (lane == 0 && out != nullptr) out[index] += factor * sum;
}

enum class Heads : std::uint8_t { rotated, all };

HeadShape shape_of(const HeadLayout& layout, Heads which, Format format) {
  if (layout.head_size > largest_head) {
    throw Error("a head of " + std::to_string(layout.head_size) + " columns",
                "the CUDA engine has heads of at most " + std::to_string(largest_head) + ": choose more heads");
  }
  HeadShape shape{};
  shape.queries = static_cast<int>(layout.heads);
  shape.rotated = static_cast<int>(layout.heads + layout.kv_heads);
  shape.heads = which == Heads::all ? static_cast<int>(layout.heads + 2 * layout.kv_heads) : shape.rotated;
  shape.size = static_cast<int>(layout.head_size);
  shape.first = (shape.size + 1) / 2;
  const Size groups = ceil_div(shape.first, group_size);
  shape.lanes = static_cast<int>(std::bit_ceil(static_cast<std::uint64_t>(groups)));
  shape.aligned = shape.size % 2 == 0 && shape.first * info(format).storage_bits / 8 % 16 == 0;
  shape.width = layout.width();
  shape.tokens = layout.tokens();
  shape.sequence = static_cast<unsigned>(layout.sequence);
  return shape;
}

HeadNorm norm_of(const PrepareHeads& op) {
  const auto gain = [](const View& view) { return view.empty() ? nullptr : view.f32(); };
  return {gain(op.query_gain), gain(op.key_gain), op.eps};
}

const float2* table_of(Gpu& gpu, RotaryTables& tables, const PrepareHeads& op) {
  if (!(op.theta > 0)) return nullptr;
  return tables.find(gpu, op);
}

bool has_norm(const PrepareHeads& op) { return !op.query_gain.empty() || !op.key_gain.empty(); }

template <class T>
void backward(Gpu& gpu, RotaryTables& tables, const PrepareHeadsBackward& op) {
  const PrepareHeads& forward = op.forward;
  HeadShape shape = shape_of(forward.layout, Heads::rotated, op.gradient.format);
  shape.aligned = shape.aligned && aligned16(op.gradient.data) && (!has_norm(forward) || aligned16(forward.in.data));
  const float2* table = table_of(gpu, tables, forward);
  const HeadNorm norm = norm_of(forward);
  const Size wanted = std::max(block_tokens, ceil_div(shape.tokens, backward_blocks));
  if (has_norm(forward)) shape.tokens_per_block = wanted;
  const auto blocks = static_cast<unsigned>(ceil_div(shape.tokens, shape.tokens_per_block));
  auto* gradient = static_cast<T*>(op.gradient.data);
  if (!has_norm(forward)) {
    heads_backward_kernel<T, false>
        <<<blocks, threads, 0, gpu.stream()>>>(shape, norm, table, nullptr, gradient, nullptr);
    return check_launch("prepare_heads_backward");
  }
  const Size row = sums_per_block(shape);
  auto* partials = gpu.workspace<float>(Slot::sums, blocks * row);
  heads_backward_kernel<T, true>
      <<<blocks, threads, static_cast<std::size_t>(warps * row) * sizeof(float), gpu.stream()>>>(
          shape, norm, table, static_cast<const T*>(forward.in.data), gradient, partials);
  check_launch("prepare_heads_backward");
  const auto out = [](const View& view) { return view.empty() ? nullptr : view.f32(); };
  gain_gradients_kernel<<<static_cast<unsigned>(ceil_div(2 * shape.size, warps)), threads, 0, gpu.stream()>>>(
      shape, partials, static_cast<int>(blocks), op.factor, out(op.query_gain_gradient), out(op.key_gain_gradient));
  check_launch("prepare_heads_backward, gains");
}

}  // namespace

RotaryTables::~RotaryTables() {
  for (const auto& [key, table] : tables_) cudaFree(table);
}

const float2* RotaryTables::find(Gpu& gpu, const PrepareHeads& op) {
  const Size sequence = op.first.empty() ? op.layout.sequence : op.positions;
  const Size head_size = op.layout.head_size;
  const Key key{sequence, head_size, op.theta, op.scaling};
  if (const auto found = tables_.find(key); found != tables_.end()) return found->second;
  if (gpu.capturing()) {
    throw Error("a table of rotary angles is needed for the first time during the capture of a CUDA graph",
                "this is a defect: a micro-step must run once before it is captured");
  }
  if (head_size % 2 != 0) {
    throw Error("a head of " + std::to_string(head_size) + " columns has no two halves to rotate",
                "make model.head_size even");
  }
  const Size half = head_size / 2;
  std::vector<float2> angles(static_cast<std::size_t>(sequence * half));
  for (Size t = 0; t < sequence; ++t) {
    for (Size i = 0; i < half; ++i) {
      const double angle = static_cast<double>(t) * rotary_frequency(op.theta, op.scaling, i, half);
      angles[static_cast<std::size_t>(t * half + i)] = {static_cast<float>(std::cos(angle)),
                                                        static_cast<float>(std::sin(angle))};
    }
  }
  float2* table = nullptr;
  const std::size_t bytes = angles.size() * sizeof(float2);
  check(cudaMalloc(reinterpret_cast<void**>(&table), bytes), "allocating rotary angles");
  tables_.emplace(key, table);
  check(cudaMemcpyAsync(table, angles.data(), bytes, cudaMemcpyHostToDevice, gpu.stream()), "copying rotary angles");
  gpu.synchronize();
  return table;
}

void prepare_heads(Gpu& gpu, RotaryTables& tables, const PrepareHeads& op) {
  const bool in_place = op.is_in_place();
  if (in_place && !has_norm(op) && !(op.theta > 0)) return;
  with_high_precision(op.out.format, [&]<class T>(T) {
    HeadShape shape = shape_of(op.layout, in_place ? Heads::rotated : Heads::all, op.out.format);
    shape.aligned = shape.aligned && aligned16(op.in.data) && aligned16(op.out.data);
    shape.first_positions = op.first.empty() ? nullptr : op.first.data();
    const float2* table = table_of(gpu, tables, op);
    const auto blocks = static_cast<unsigned>(ceil_div(shape.tokens, block_tokens));
    const auto* in = static_cast<const T*>(op.in.data);
    auto* out = static_cast<T*>(op.out.data);
    if (has_norm(op)) {
      heads_kernel<T, true><<<blocks, threads, 0, gpu.stream()>>>(shape, norm_of(op), table, in, out);
    } else {
      heads_kernel<T, false><<<blocks, threads, 0, gpu.stream()>>>(shape, norm_of(op), table, in, out);
    }
    check_launch("prepare_heads");
  });
}

void prepare_heads_backward(Gpu& gpu, RotaryTables& tables, const PrepareHeadsBackward& op) {
  if (!has_norm(op.forward) && !(op.forward.theta > 0)) return;
  with_high_precision(op.gradient.format, [&]<class T>(T) { backward<T>(gpu, tables, op); });
}

}  // namespace quaver::cuda
