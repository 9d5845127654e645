// How the kernels of a cast are chosen and launched.
#pragma once

#include <type_traits>

#include "engine/cuda/cast/cast_tile.cuh"
#include "engine/cuda/runtime/gpu.h"
#include "engine/tensor_cores.h"
#include "formats/hadamard.h"
#include "quaver/error.h"
#include "tensor/view.h"

namespace quaver::cuda::casts {

// The signs of a rotation, a bit each.
inline Bits packed_signs(const RandomKey& key) {
  const RotationSigns signs = rotation_signs(key);
  Bits packed = 0;
  for (int i = 0; i < group_size; ++i) packed |= (signs[static_cast<std::size_t>(i)] >> 31) << i;
  return packed;
}

inline Source source_of(const View& x, float factor) {
  const bool known = x.format == Format::f32 || x.format == Format::bf16 || x.format == Format::f16;
  if (!known) {
    throw Error("a matrix in " + std::string(info(x.format).name) + " cannot be cast",
                "this is a defect: casts start from FP32, BF16 or FP16");
  }
  const bool aligned =
      reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0 && x.row_stride() * info(x.format).storage_bits / 8 % 16 == 0;
  return {x.data, x.format, x.rows, x.cols, factor, aligned, x.row_stride()};
}

// Calls work with a value of the type that tiles of the source have.
template <class Work>
void with_tile_type(const Source& x, Work work) {
  if (x.format == Format::bf16) {
    work(__nv_bfloat16{});
  } else {
    work(float{});
  }
}

template <Format F>
using FormatConstant = std::integral_constant<Format, F>;

template <class Work>
void with_format(Format format, Work work) {
  switch (format) {
    case Format::f32:
      return work(FormatConstant<Format::f32>{});
    case Format::tf32:
      return work(FormatConstant<Format::tf32>{});
    case Format::bf16:
      return work(FormatConstant<Format::bf16>{});
    case Format::f16:
      return work(FormatConstant<Format::f16>{});
    case Format::e4m3:
      return work(FormatConstant<Format::e4m3>{});
    case Format::e5m2:
      return work(FormatConstant<Format::e5m2>{});
    case Format::e2m1:
      return work(FormatConstant<Format::e2m1>{});
    case Format::e3m4:
    case Format::e3m2:
    case Format::e2m3:
    case Format::int8:
      break;
  }
  require_cast_on_gpu(format);
}

template <class Work>
void with_fp8(Format format, Work work) {
  if (format == Format::e5m2) return work(FormatConstant<Format::e5m2>{});
  if (format == Format::e4m3) return work(FormatConstant<Format::e4m3>{});
  throw Error(std::string(info(format).name) + " is neither e4m3 nor e5m2", "this is a defect of the cast's rules");
}

// One thread block per tile; a matrix without elements gets one too, which stores its scales.
inline unsigned tile_count(const Source& x) {
  const Size tiles = x.tiles_across() * x.tiles_down();
  return static_cast<unsigned>(tiles > 0 ? tiles : 1);
}

template <class T, class... Arguments>
void launch_tiles(Gpu& gpu, void (*kernel)(Arguments...), const Source& x, const char* name,
                  const std::type_identity_t<Arguments>&... arguments) {
  constexpr int usual_limit = 48 * 1024;
  if constexpr (tile_bytes < T >> usual_limit) {
    check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize,
                               tile_bytes<T>),
          name);
  }
  kernel<<<tile_count(x), tile_threads, tile_bytes<T>, gpu.stream()>>>(arguments...);
  check_launch(name);
}

}  // namespace quaver::cuda::casts
