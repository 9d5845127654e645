#include "engine/cuda/convolution/fast_divide.cuh"
#include "engine/cuda/convolution/patch_codes.h"
#include "engine/cuda/convolution/patches.h"
#include "engine/cuda/convolution/tiles.cuh"

namespace quaver::cuda {

namespace {

// A window as kernels read it.
struct WindowShape {
  int height;
  int width;
  int channels;
  int kernel;
  int padding;
  FastDivide stride;
  FastDivide out_width;
  FastDivide out_height;

  explicit WindowShape(const PatchWindow& window)
      : height(to_int(window.height)),
        width(to_int(window.width)),
        channels(to_int(window.channels)),
        kernel(to_int(window.kernel)),
        padding(to_int(window.padding())),
        stride(to_int(window.stride)),
        out_width(to_int(window.out_width())),
        out_height(to_int(window.out_height())) {}
};

// The window's first pixel at a position.
struct Corner {
  int image;
  int y;
  int x;

  __device__ Corner(const WindowShape& window, int position) {
    const int row = window.out_width.quotient(position);
    image = window.out_height.quotient(row);
    const int stride = static_cast<int>(window.stride.divisor);
    y = window.out_height.rest(row, image) * stride - window.padding;
    x = window.out_width.rest(position, row) * stride - window.padding;
  }

  // Where the pixel of a tap lies in the map; −1: outside.
  __device__ std::int64_t pixel(const WindowShape& window, int ky, int kx) const {
    const bool inside = static_cast<unsigned>(y + ky) < static_cast<unsigned>(window.height) &&
                        static_cast<unsigned>(x + kx) < static_cast<unsigned>(window.width);
    return inside ? static_cast<std::int64_t>(image * window.height + y + ky) * window.width + x + kx : -1;
  }
};

// Any number of channels, one element at a time: the first convolution's, of an image with one or three, and what
// changes its format without being cast to FP8.
template <class X>
struct SinglePatches {
  const X* x;
  WindowShape window;
  int taps;

  struct Columns {
    const SinglePatches& from;
    int col;
    int valid;

    __device__ void values(int row, float (&v)[group_size]) const {
      const Corner corner(from.window, row);
#pragma unroll
      for (int i = 0; i < group_size; ++i) {
        const int tap = (col + i) / from.window.channels;
        const std::int64_t pixel = i < valid && col + i < from.taps
                                       ? corner.pixel(from.window, tap / from.window.kernel, tap % from.window.kernel)
                                       : -1;
        v[i] = pixel >= 0 ? to_float(from.x[pixel * from.window.channels + (col + i) % from.window.channels]) : 0.0F;
      }
    }
  };
  __device__ Columns columns(int col, int valid) const { return {*this, col, valid}; }
};

constexpr int threads = 256;

// Threads of a kernel over groups of eight channels of each row.
struct Groups {
  Size rows;
  int cols;
  FastDivide across;

  Groups(Size rows_in, Size cols_in)
      : rows(rows_in), cols(to_int(cols_in)), across(to_int(ceil_div(cols_in, group_size))) {}
  __host__ __device__ Size count() const { return rows * static_cast<Size>(across.divisor); }
  unsigned blocks() const { return static_cast<unsigned>(ceil_div(to_int(count()), threads)); }

  struct Place {
    int row;
    int col;
    int valid;
  };
  __device__ Place place() const { return place(static_cast<int>(blockIdx.x * threads + threadIdx.x)); }
  __device__ Place place(int index) const {
    const int row = across.quotient(index);
    const int col = across.rest(index, row) * group_size;
    return {row, col, row < rows ? cols - col : 0};
  }
};

// The row of positions of which tap k is pixel row y; −1: none.
__device__ inline int position_along(int y, int k, const WindowShape& window, const FastDivide& count) {
  const int first = y + window.padding - k;
  if (first < 0) return -1;
  const int position = window.stride.quotient(first);
  return window.stride.rest(first, position) == 0 && position < static_cast<int>(count.divisor) ? position : -1;
}

// Where a row of the feature map's matrix lies.
struct PixelShape {
  FastDivide width;
  FastDivide height;

  explicit PixelShape(const PatchWindow& window) : width(to_int(window.width)), height(to_int(window.height)) {}

  struct Place {
    int image;
    int y;
    int x;
  };
  __device__ Place place(int pixel) const {
    const int line = width.quotient(pixel);
    const int image = height.quotient(line);
    return {image, height.rest(line, image), width.rest(pixel, line)};
  }
};

// ---- patches as copies --------------------------------------------------------------------------------------------

// Vectors of 16 bytes lie in one tap where its channels are whole vectors.
constexpr int copy_threads = 128;
constexpr int copy_cols = 64;  // of a tile
using Tile = CodeTile<tiles::tile_side>;

struct Copy {
  const std::byte* from;
  WindowShape window;
  int rows;
  int cols;
  int row_bytes;
  std::byte* to = nullptr;       // may be null
  std::byte* columns = nullptr;  // FP8 codes alone: the transpose; may be null
  int column_bytes = 0;
  float* scale = nullptr;  // where 1 is stored, of what is not cast; may be null
};

template <int kSize, bool kColumns>
__global__ void __launch_bounds__(copy_threads) copy_kernel(const Copy op) {
  constexpr int vector = 16 / kSize;
  constexpr int across = copy_cols / vector;
  constexpr int rows_at_once = copy_threads / across;
  __shared__ __align__(128) std::uint8_t memory[kColumns ? Tile::bytes_for(copy_cols) : 16];
  const Tile tile{memory, copy_cols};
  const int lane = static_cast<int>(threadIdx.x) % across * vector;
  const int down = static_cast<int>(threadIdx.x) / across;
  const int col0 = static_cast<int>(blockIdx.x) * copy_cols;
  const int col = col0 + lane;
  const int tap = col / op.window.channels;
  const int ky = tap / op.window.kernel;
  const int kx = tap % op.window.kernel;
  const std::int64_t channel = col % op.window.channels;
  const bool has_tap = ky < op.window.kernel;
  if (op.scale != nullptr && blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) *op.scale = 1;
  for (int row0 = static_cast<int>(blockIdx.y) * tiles::tile_side; row0 < op.rows;
       row0 += static_cast<int>(gridDim.y) * tiles::tile_side) {
    const int rows = min(tiles::tile_side, op.rows - row0);
#pragma unroll 4
    for (int r = down; r < tiles::tile_side; r += rows_at_once) {
      if (r >= rows || col >= op.cols) break;
      const std::int64_t pixel = has_tap ? Corner(op.window, row0 + r).pixel(op.window, ky, kx) : -1;
      uint4 v = make_uint4(0, 0, 0, 0);
      if (pixel >= 0) v = *reinterpret_cast<const uint4*>(op.from + (pixel * op.window.channels + channel) * kSize);
      if (op.to != nullptr) *reinterpret_cast<uint4*>(op.to + offset_of(row0 + r, op.row_bytes) + col * kSize) = v;
      if constexpr (kColumns) {
        tile.put(tile.offset(r, lane), make_uint2(v.x, v.y));
        tile.put(tile.offset(r, lane + 8), make_uint2(v.z, v.w));
      }
    }
    if constexpr (kColumns) {
      __syncthreads();
      tile.write_columns(op.columns, op.column_bytes, row0, col0, rows, min(copy_cols, op.cols - col0));
      __syncthreads();
    }
  }
}

template <int kSize>
void copy_patches(Gpu& gpu, const Copy& op) {
  constexpr int blocks_wanted = 16;  // for each multiprocessor
  const Size across = ceil_div(op.cols, copy_cols);
  const Size fill = ceil_div(Size{blocks_wanted} * gpu.multiprocessors(), across);
  const Size strips = std::clamp<Size>(std::min(ceil_div(op.rows, tiles::tile_side), fill), 1, 65535);
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(strips));
  if constexpr (kSize == 1) {
    if (op.columns != nullptr) {
      copy_kernel<1, true><<<grid, copy_threads, 0, gpu.stream()>>>(op);
      return check_launch("copy_patches");
    }
  }
  copy_kernel<kSize, false><<<grid, copy_threads, 0, gpu.stream()>>>(op);
  check_launch("copy_patches");
}

// Every pixel is cast once, and counted as often as patches have it. Few blocks: each adds its counts to the same
// words.
template <class X>
__global__ void __launch_bounds__(threads)
    cast_pixels_kernel(const Groups groups, const X* x, const WindowShape window, const PixelShape pixels,
                       const FusedTarget out, unsigned long long elements, std::byte* codes) {
  const auto count = static_cast<unsigned>(groups.count());
  const Fp8Caster caster = Fp8Caster::into(out);
  CastCounts counts;
  for (unsigned index = blockIdx.x * threads + threadIdx.x; index < count; index += gridDim.x * threads) {
    const Groups::Place at = groups.place(static_cast<int>(index));
    const std::int64_t place = offset_of(at.row, groups.cols) + at.col;
    float v[group_size];
    load8(x + place, group_size, true, v);
    CastCounts once;
    caster.with_format(
        [&](const auto& to_format) { *reinterpret_cast<uint2*>(codes + place) = to_format.cast(v, once); });
    const PixelShape::Place pixel = pixels.place(at.row);
    unsigned down = 0;
    unsigned right = 0;
    for (int k = 0; k < window.kernel; ++k) {
      down += position_along(pixel.y, k, window, window.out_height) >= 0 ? 1 : 0;
      right += position_along(pixel.x, k, window, window.out_width) >= 0 ? 1 : 0;
    }
    const unsigned times = down * right;
    counts.amax = max(counts.amax, times > 0 ? once.amax : 0);
    counts.nonfinite += times * once.nonfinite;
    counts.saturated += times * once.saturated;
    counts.underflowed += times * once.underflowed;
  }
  add_counts(out.statistics, counts, blockIdx.x == 0 ? elements : 0);
  if (blockIdx.x == 0 && threadIdx.x == 0) store_scales(out, stored_scale(out));
}

template <class X>
void cast_patches(Gpu& gpu, const Patches& op, const FusedTarget& out) {
  const PatchWindow& window = op.window;
  std::byte* codes = gpu.workspace(Slot::large, static_cast<std::size_t>(pixel_codes_bytes(window)));
  const Groups groups(window.pixels(), window.channels);
  const Size rows = op.out.rows_count();
  const Size cols = op.out.cols_count();
  const unsigned blocks = std::min(groups.blocks(), 8 * static_cast<unsigned>(gpu.multiprocessors()));
  cast_pixels_kernel<X><<<blocks, threads, 0, gpu.stream()>>>(groups, static_cast<const X*>(op.x.data),
                                                              WindowShape(window), PixelShape(window), out,
                                                              static_cast<unsigned long long>(rows * cols), codes);
  check_launch("cast_pixels");
  copy_patches<1>(gpu, {.from = codes,
                        .window = WindowShape(window),
                        .rows = to_int(rows),
                        .cols = to_int(cols),
                        .row_bytes = out.row_bytes,
                        .to = out.rows,
                        .columns = out.columns,
                        .column_bytes = out.column_bytes});
}

// T is the engine's high precision.
template <class T, class X>
void patches_of(Gpu& gpu, const Patches& op, const FusedTarget& out) {
  const PatchWindow& window = op.window;
  const Size rows = op.out.rows_count();
  const Size cols = op.out.cols_count();
  constexpr Size vector = 16 / sizeof(T);
  const bool in_vectors = window.channels % vector == 0 && cols % vector == 0 && aligned16(op.x.data);
  if constexpr (std::is_same_v<T, __nv_bfloat16>) {
    if (out.is_fp8() && patches_are_codes(op) && aligned16(op.x.data)) return cast_patches<X>(gpu, op, out);
  }
  if constexpr (std::is_same_v<T, X>) {
    if (out.format == op.x.format && in_vectors && aligned16(out.rows)) {
      return copy_patches<sizeof(T)>(gpu, {.from = static_cast<const std::byte*>(op.x.data),
                                           .window = WindowShape(window),
                                           .rows = to_int(rows),
                                           .cols = to_int(cols),
                                           .row_bytes = to_int(cols * sizeof(T)),
                                           .to = out.rows,
                                           .scale = out.rows_scale});
    }
  }
  tiles::write<T>(gpu, rows, cols, out,
                  SinglePatches<X>{static_cast<const X*>(op.x.data), WindowShape(window), to_int(window.taps())});
}

// ---- the other way ------------------------------------------------------------------------------------------------

template <class T>
struct Gather {
  const T* from;
  const T* next;  // may be null, or `to`
  T* to;
  int from_width;
  bool aligned;
  WindowShape window;
  PixelShape pixels;
};

template <class T>
__global__ void __launch_bounds__(threads) gather_kernel(const Groups groups, const Gather<T> op) {
  const Groups::Place at = groups.place();
  if (at.valid <= 0) return;
  const auto [image, y, x] = op.pixels.place(at.row);
  const std::int64_t place = offset_of(at.row, groups.cols) + at.col;
  float sum[group_size] = {};
  if (op.next != nullptr) load8(op.next + place, at.valid, op.aligned, sum);
  for (int ky = 0; ky < op.window.kernel; ++ky) {
    const int row = position_along(y, ky, op.window, op.window.out_height);
    if (row < 0) continue;
    for (int kx = 0; kx < op.window.kernel; ++kx) {
      const int col = position_along(x, kx, op.window, op.window.out_width);
      if (col < 0) continue;
      const int position = (image * static_cast<int>(op.window.out_height.divisor) + row) *
                               static_cast<int>(op.window.out_width.divisor) +
                           col;
      float v[group_size];
      load8(op.from + offset_of(position, op.from_width) + (ky * op.window.kernel + kx) * groups.cols + at.col,
            at.valid, op.aligned, v);
#pragma unroll
      for (int i = 0; i < group_size; ++i) sum[i] += v[i];
    }
  }
  store8(op.to + place, at.valid, op.aligned, sum);
}

template <class T>
struct PooledPixels {
  const T* x;
  int pixels;
  int channels;
  bool aligned;

  struct Columns {
    const PooledPixels& from;
    int col;
    int valid;

    __device__ void values(int row, float (&sum)[group_size]) const {
#pragma unroll
      for (int i = 0; i < group_size; ++i) sum[i] = 0;
      const T* at = from.x + static_cast<std::int64_t>(row) * from.pixels * from.channels + col;
      for (int p = 0; p < from.pixels; ++p, at += from.channels) {
        float v[group_size];
        load8(at, valid, from.aligned, v);
#pragma unroll
        for (int i = 0; i < group_size; ++i) sum[i] += v[i];
      }
#pragma unroll
      for (int i = 0; i < group_size; ++i) sum[i] = __fdiv_rn(sum[i], static_cast<float>(from.pixels));
    }
  };
  __device__ Columns columns(int col, int valid) const { return {*this, col, valid}; }
};

template <class T>
__global__ void __launch_bounds__(threads)
    spread_kernel(const Groups groups, const T* from, FastDivide pixels, bool aligned, T* to) {
  const Groups::Place at = groups.place();
  if (at.valid <= 0) return;
  float v[group_size];
  load8(from + offset_of(pixels.quotient(at.row), groups.cols) + at.col, at.valid, aligned, v);
#pragma unroll
  for (int i = 0; i < group_size; ++i) v[i] = __fdiv_rn(v[i], static_cast<float>(pixels.divisor));
  store8(to + offset_of(at.row, groups.cols) + at.col, at.valid, aligned, v);
}

}  // namespace

void patches(Gpu& gpu, const Patches& op, Format high, const FusedTarget& out) {
  if (op.out.rows_count() == 0) return;
  if (op.x.format != Format::f32 && op.x.format != high) {
    throw Error(
        "pixels in " + std::string(info(op.x.format).name) + " become patches in " + std::string(info(high).name),
        "this is a defect: pixels are stored in FP32 or in the engine's high precision");
  }
  with_high_precision(high, [&]<class T>(T) {
    if (op.x.format == Format::f32) return patches_of<T, float>(gpu, op, out);
    patches_of<T, T>(gpu, op, out);
  });
}

void patches_backward(Gpu& gpu, const PatchesBackward& op) {
  const Groups groups(op.window.pixels(), op.window.channels);
  if (groups.count() == 0) return;
  with_high_precision(op.gradient.format, [&]<class T>(T) {
    const bool aligned =
        rows_aligned(op.patches_gradient) && rows_aligned(op.gradient) && (op.next.empty() || rows_aligned(op.next));
    gather_kernel<T><<<groups.blocks(), threads, 0, gpu.stream()>>>(
        groups, Gather<T>{.from = static_cast<const T*>(op.patches_gradient.data),
                          .next = static_cast<const T*>(op.next.data),
                          .to = static_cast<T*>(op.gradient.data),
                          .from_width = to_int(op.patches_gradient.cols),
                          .aligned = aligned,
                          .window = WindowShape(op.window),
                          .pixels = PixelShape(op.window)});
  });
  check_launch("patches_backward");
}

void average_pool(Gpu& gpu, const AveragePool& op, const FusedTarget& out) {
  const Size rows = op.out.rows_count();
  if (rows == 0) return;
  with_high_precision(op.x.format, [&]<class T>(T) {
    tiles::write<T>(gpu, rows, op.x.cols, out,
                    PooledPixels<T>{.x = static_cast<const T*>(op.x.data),
                                    .pixels = to_int(op.x.rows / rows),
                                    .channels = to_int(op.x.cols),
                                    .aligned = rows_aligned(op.x)});
  });
}

void average_pool_backward(Gpu& gpu, const AveragePoolBackward& op) {
  const Groups groups(op.gradient.rows, op.gradient.cols);
  if (groups.count() == 0) return;
  const FastDivide pixels(to_int(op.gradient.rows / op.out_gradient.rows));
  const bool aligned = rows_aligned(op.gradient) && rows_aligned(op.out_gradient);
  with_high_precision(op.gradient.format, [&]<class T>(T) {
    spread_kernel<T><<<groups.blocks(), threads, 0, gpu.stream()>>>(groups, static_cast<const T*>(op.out_gradient.data),
                                                                    pixels, aligned, static_cast<T*>(op.gradient.data));
  });
  check_launch("average_pool_backward");
}

}  // namespace quaver::cuda
