// wide_copy: matrices between f32, bf16 and f16, sixteen elements a thread.
#include "engine/cuda/cast.h"
#include "engine/cuda/cast_launch.cuh"

namespace quaver::cuda {

namespace {

using namespace casts;

constexpr int copy_threads = 256;

struct CopyJob {
  const void* in;
  void* out;
  Size count;
  float factor;
  bool aligned;  // both start on 16 bytes
};

__device__ inline float as_float(float x) { return x; }
__device__ inline float as_float(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ inline float as_float(__half x) { return half_value(x); }

// What one vector load brings.
template <class In>
struct alignas(16) Elements {
  In at[16 / sizeof(In)];
};

template <class In>
__device__ void read_elements(const In* in, int count, bool whole, float (&v)[group_size]) {
  constexpr int width = 16 / sizeof(In);
  if (whole) {
#pragma unroll
    for (int i = 0; i < group_size / width; ++i) {
      const Elements<In> some = reinterpret_cast<const Elements<In>*>(in)[i];
#pragma unroll
      for (int j = 0; j < width; ++j) v[i * width + j] = as_float(some.at[j]);
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < group_size; ++i) v[i] = i < count ? as_float(in[i]) : 0.0F;
}

template <class In, Format F>
__global__ void __launch_bounds__(copy_threads) copy_groups(CopyJob job) {
  using Out = lane::Storage<F>;
  const Size first = (static_cast<Size>(blockIdx.x) * copy_threads + threadIdx.x) * group_size;
  if (first >= job.count) return;
  const int count = static_cast<int>(job.count - first < group_size ? job.count - first : group_size);
  const bool whole = job.aligned && count == group_size;
  float v[group_size];
  read_elements(static_cast<const In*>(job.in) + first, count, whole, v);
#pragma unroll
  for (int i = 0; i < group_size; ++i) v[i] = scaled_value<Payload::kept>(v[i], job.factor);
  Packed<F> packed;
  encode_group<F, Rounding::nearest_even>(v, 1.0F, {}, 0, packed);
  if (!is_finite(largest_magnitude(v))) patch_nonfinite<F>(v, packed);
  Out* out = static_cast<Out*>(job.out) + first;
  if (whole) {
#pragma unroll
    for (int w = 0; w < packed_words<F>; w += 4) {
      reinterpret_cast<uint4*>(out)[w / 4] = uint4{packed[w], packed[w + 1], packed[w + 2], packed[w + 3]};
    }
    return;
  }
  constexpr int width = lane::layout(F).width;
#pragma unroll
  for (int i = 0; i < group_size; ++i) {
    if (i < count) out[i] = static_cast<Out>(packed[i * width / 32] >> (i * width % 32));
  }
}

template <class In>
void copy_from(Gpu& gpu, const CopyJob& job, Format format) {
  const auto blocks = static_cast<unsigned>(ceil_div(job.count, copy_threads * group_size));
  switch (format) {
    case Format::f32:
      copy_groups<In, Format::f32><<<blocks, copy_threads, 0, gpu.stream()>>>(job);
      break;
    case Format::bf16:
      copy_groups<In, Format::bf16><<<blocks, copy_threads, 0, gpu.stream()>>>(job);
      break;
    default:
      copy_groups<In, Format::f16><<<blocks, copy_threads, 0, gpu.stream()>>>(job);
  }
  check_launch("copy_groups");
}

bool is_copied(Format format) { return format == Format::f32 || format == Format::bf16 || format == Format::f16; }

}  // namespace

void wide_copy(Gpu& gpu, View in, View out, float factor) {
  if (!is_copied(in.format) || !is_copied(out.format) || in.count() != out.count()) {
    throw Error("a matrix cannot be copied into one of another size or a narrow format",
                "this is a defect: wide copies are between f32, bf16 and f16");
  }
  if (in.count() == 0) return;
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(in.data) % 16 == 0 && reinterpret_cast<std::uintptr_t>(out.data) % 16 == 0;
  const CopyJob job{in.data, out.data, in.count(), factor, aligned};
  switch (in.format) {
    case Format::f32:
      return copy_from<float>(gpu, job, out.format);
    case Format::bf16:
      return copy_from<__nv_bfloat16>(gpu, job, out.format);
    default:
      return copy_from<__half>(gpu, job, out.format);
  }
}

}  // namespace quaver::cuda
