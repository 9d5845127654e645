#include <bit>
#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include "engine/cuda/cast/cast_launch.cuh"
#include "engine/cuda/device/primitives.cuh"
#include "engine/cuda/gemm/decode.h"
#include "quaver/error.h"

namespace quaver::cuda {
namespace {

constexpr int threads = 256;
constexpr int group = 8;            // elements a thread decodes at once; every block is a multiple of it
constexpr int groups_a_thread = 2;  // loads in flight

// The scales of element (r, c). A block that spans the whole extent has a shift that leaves nothing.
struct ScaleMap {
  const float* scales;
  Size cols;
  int row_shift;
  int col_shift;
  const float* tensor;  // null: left out

  __device__ float at(Size row, Size col) const {
    return scales == nullptr ? 1.0F : scales[(row >> row_shift) * cols + (col >> col_shift)];
  }
  __device__ float of_tensor() const { return tensor == nullptr ? 1.0F : *tensor; }
};

int shift_of(int extent) { return extent == 0 ? 63 : std::countr_zero(static_cast<unsigned>(extent)); }

template <Format format>
constexpr int bits_of() {
  if constexpr (format == Format::f32 || format == Format::tf32) return 32;
  if constexpr (format == Format::bf16 || format == Format::f16) return 16;
  return format == Format::e2m1 ? 4 : 8;
}

// The three bits below the sign are a half's exponent and first mantissa bit, 2^14 too small; subnormals included.
__device__ float decode_e2m1(std::uint32_t code) {
  const auto bits = static_cast<unsigned short>((code & 8U) << 12 | (code & 7U) << 9);
  return __half2float(__ushort_as_half(bits)) * 16384.0F;
}

template <Format format>
__device__ float2 decode_fp8_pair(std::uint32_t pair) {
  constexpr auto kind = format == Format::e4m3 ? __NV_E4M3 : __NV_E5M2;
  return __half22float2(__half2(__nv_cvt_fp8x2_to_halfraw2(static_cast<__nv_fp8x2_storage_t>(pair & 0xFFFFU), kind)));
}

template <Format format>
__device__ float2 decode_16bit_pair(std::uint32_t pair) {
  if constexpr (format == Format::bf16) return {low_of(pair), high_of(pair)};
  return {__half2float(__ushort_as_half(static_cast<unsigned short>(pair & 0xFFFFU))),
          __half2float(__ushort_as_half(static_cast<unsigned short>(pair >> 16)))};
}

// A group's codes, in one or two loads.
template <Format format>
struct alignas(bits_of<format>() >= 16 ? 16 : bits_of<format>()) Codes {
  static constexpr int words = group * bits_of<format>() / 32;
  std::uint32_t word[words];

  __device__ void decode(float (&x)[group]) const {
    if constexpr (bits_of<format>() == 32) {
#pragma unroll
      for (int i = 0; i < group; ++i) x[i] = __uint_as_float(word[i]);
    } else if constexpr (bits_of<format>() == 4) {
#pragma unroll
      for (int i = 0; i < group; ++i) x[i] = decode_e2m1(word[0] >> (4 * i));
    } else {
#pragma unroll
      for (int i = 0; i < group / 2; ++i) {
        float2 pair;
        if constexpr (bits_of<format>() == 16) {
          pair = decode_16bit_pair<format>(word[i]);
        } else {
          pair = decode_fp8_pair<format>(word[i / 2] >> (16 * (i % 2)));
        }
        x[2 * i] = pair.x;
        x[2 * i + 1] = pair.y;
      }
    }
  }
};

template <class Out>
struct alignas(16) Values {
  Out value[group];
};

__device__ void put(float x, float& out) { out = x; }
__device__ void put(float x, __nv_bfloat16& out) { out = __float2bfloat16_rn(x); }

// Groups of a row, and bytes from row to row.
struct GroupRows {
  Size groups;
  Size bytes;
};

template <Format format, class Out>
__global__ void __launch_bounds__(threads)
    decode_groups(const std::byte* __restrict__ codes, Size groups, GroupRows rows, ScaleMap map, Values<Out>* out) {
  const Size first = static_cast<Size>(blockIdx.x) * (threads * groups_a_thread) + threadIdx.x;
  Codes<format> loaded[groups_a_thread];
#pragma unroll
  for (int i = 0; i < groups_a_thread; ++i) {
    const Size index = first + i * threads;
    const Size row = index / rows.groups;
    if (index < groups) {
      loaded[i] = reinterpret_cast<const Codes<format>*>(codes + row * rows.bytes)[index - row * rows.groups];
    }
  }
#pragma unroll
  for (int i = 0; i < groups_a_thread; ++i) {
    const Size index = first + i * threads;
    if (index >= groups) return;
    const Size row = index / rows.groups;
    const float scale = map.at(row, (index - row * rows.groups) * group);
    const float tensor = map.of_tensor();
    float x[group];
    loaded[i].decode(x);
    Values<Out> values;
#pragma unroll
    for (int e = 0; e < group; ++e) put(x[e] * scale * tensor, values.value[e]);
    out[index] = values;
  }
}

template <Format format>
__device__ float decode_one(const std::byte* row, Size col) {
  const auto* bytes = reinterpret_cast<const std::uint8_t*>(row);
  if constexpr (bits_of<format>() == 32) {
    return reinterpret_cast<const float*>(row)[col];
  } else if constexpr (bits_of<format>() == 16) {
    return decode_16bit_pair<format>(reinterpret_cast<const std::uint16_t*>(row)[col]).x;
  } else if constexpr (bits_of<format>() == 8) {
    return decode_fp8_pair<format>(bytes[col]).x;
  } else {
    return decode_e2m1(static_cast<std::uint32_t>(bytes[col / 2]) >> (4 * (col % 2)));
  }
}

// Any width and alignment.
template <Format format, class Out>
__global__ void __launch_bounds__(threads)
    decode_elements(const std::byte* __restrict__ codes, Size row_bytes, Size rows, Size cols, ScaleMap map, Out* out) {
  const Size index = static_cast<Size>(blockIdx.x) * threads + threadIdx.x;
  if (index >= rows * cols) return;
  const Size row = index / cols;
  const Size col = index - row * cols;
  put(decode_one<format>(codes + row * row_bytes, col) * map.at(row, col) * map.of_tensor(), out[index]);
}

// Any matrix of codes.
struct CodeRows {
  const std::byte* codes;
  Size row_bytes;
  Size rows;
  Size cols;
};

// A group of a rotation to a thread. A row's last elements may be too few for one, and are as they were.
template <Format format, class Out>
__global__ void __launch_bounds__(threads)
    decode_rotated(CodeRows matrix, ScaleMap map, std::uint32_t signs, Out* out) {
  using casts::group_size;
  const Size groups = (matrix.cols + group_size - 1) / group_size;
  const Size index = static_cast<Size>(blockIdx.x) * threads + threadIdx.x;
  const Size row = index / groups;
  if (row >= matrix.rows) return;
  const Size first = (index - row * groups) * group_size;
  const float tensor = map.of_tensor();
  float x[group_size] = {};
#pragma unroll
  for (int i = 0; i < group_size; ++i) {
    const Size col = first + i;
    if (col < matrix.cols) {
      x[i] = decode_one<format>(matrix.codes + row * matrix.row_bytes, col) * map.at(row, col) * tensor;
    }
  }
  if (first + group_size <= matrix.cols) {
    casts::rotate_group(x, 0);
#pragma unroll
    for (int i = 0; i < group_size; ++i) x[i] = __uint_as_float(__float_as_uint(x[i]) ^ (((signs >> i) & 1U) << 31));
  }
#pragma unroll
  for (int i = 0; i < group_size; ++i) {
    if (first + i < matrix.cols) put(x[i], out[row * matrix.cols + first + i]);
  }
}

bool aligned(const void* pointer, std::size_t bytes) { return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0; }

ScaleMap scales_of(const CodeMatrix& matrix, const float* tensor) {
  return {matrix.has_block_scales() ? matrix.block_scales : nullptr, matrix.scale_cols(),
          shift_of(matrix.spec.block.rows), shift_of(matrix.spec.block.cols), tensor};
}

template <Format format, class Out>
void decode_as(Gpu& gpu, const CodeMatrix& matrix, const float* tensor, Out* out) {
  const ScaleMap map = scales_of(matrix, tensor);
  const Size count = matrix.rows * matrix.cols;
  if (count == 0) return;
  const bool in_groups = matrix.cols % group == 0 && matrix.row_bytes() % alignof(Codes<format>) == 0;
  if (in_groups && aligned(matrix.codes, alignof(Codes<format>)) && aligned(out, 16)) {
    const Size groups = count / group;
    decode_groups<format, Out>
        <<<static_cast<unsigned>(ceil_div(groups, threads * groups_a_thread)), threads, 0, gpu.stream()>>>(
            matrix.codes, groups, GroupRows{matrix.cols / group, matrix.row_bytes()}, map,
            reinterpret_cast<Values<Out>*>(out));
  } else {
    decode_elements<format, Out><<<static_cast<unsigned>(ceil_div(count, threads)), threads, 0, gpu.stream()>>>(
        matrix.codes, matrix.row_bytes(), matrix.rows, matrix.cols, map, out);
  }
  check_launch("decoding an operand");
}

// Calls work(out as what it holds).
template <class Work>
void with_values(Format format, void* out, const Work& work) {
  if (format == Format::bf16) return work(static_cast<__nv_bfloat16*>(out));
  if (format == Format::f32) return work(static_cast<float*>(out));
  throw Error("codes decode to bf16 or f32 only", "this is a defect of the operation that asked for it");
}

}  // namespace

void decode_matrix(Gpu& gpu, const CodeMatrix& matrix, Format as, void* out) {
  with_values(as, out, [&](auto* values) {
    casts::with_format(matrix.spec.format,
                       [&](auto format) { decode_as<decltype(format)::value>(gpu, matrix, nullptr, values); });
  });
}

void dequantize(Gpu& gpu, const Dequantize& op) {
  const CodeMatrix& from = op.from;
  const bool rotated = from.spec.rotation != Rotation::none;
  with_values(op.out.format, op.out.data, [&](auto* values) {
    casts::with_format(from.spec.format, [&](auto constant) {
      constexpr Format format = decltype(constant)::value;
      if (!rotated) return decode_as<format>(gpu, from, from.tensor_scale, values);
      if constexpr (bits_of<format>() <= 8) {
        const Size groups = from.rows * ceil_div(from.cols, casts::group_size);
        decode_rotated<format><<<static_cast<unsigned>(ceil_div(groups, threads)), threads, 0, gpu.stream()>>>(
            {from.codes, from.row_bytes(), from.rows, from.cols}, scales_of(from, from.tensor_scale),
            casts::packed_signs(op.random), values);
        check_launch("dequantizing a matrix");
      }
    });
  });
}

}  // namespace quaver::cuda
