#include <algorithm>
#include <iterator>

#include "engine/cuda/cast/cast_launch.cuh"
#include "engine/cuda/cast/column_sums.h"
#include "engine/cuda/cast/tile_producers.cuh"
#include "engine/cuda/cast/whole_tiles.h"
#include "engine/cuda/workspace_sizes.h"

namespace quaver::cuda {

namespace {

using namespace casts;

constexpr Size most_tiles_down = 65535;  // of a grid

bool is_whole(const CodeMatrix& matrix) {
  return matrix.rows % tile_size == 0 && matrix.cols % tile_size == 0 &&
         reinterpret_cast<std::uintptr_t>(matrix.codes) % 16 == 0 && matrix.row_bytes() % 16 == 0;
}

TileScales scales_of(const QuantSpec& spec) {
  const bool plain = is_fp8(spec.format) && spec.policy == ScalePolicy::current && spec.shrink == 1.0F &&
                     (spec.scale == ScaleFormat::f32 || spec.scale == ScaleFormat::f32_power_of_two) &&
                     spec.rounding == Rounding::nearest_even && spec.rotation == Rotation::none;
  if (plain && spec.block == block::tensor) return TileScales::tensor;
  return plain && spec.block == block::b1x128 && spec.format == Format::e4m3 ? TileScales::blocks : TileScales::none;
}

// Along columns whole tiles may be blocks: else as along rows.
QuantSpec in_lines(QuantSpec spec) {
  if (spec.block == block::b128x128) spec.block = block::b1x128;
  return spec;
}

TileSide tile_side(const CodeMatrix& matrix, const unsigned* amax) {
  if (matrix.codes == nullptr) return {};
  return {.codes = matrix.codes,
          .scales = matrix.block_scales,
          .amax = amax,
          .tensor_scale = matrix.tensor_scale,
          .row_bytes = to_int(matrix.row_bytes()),
          .scale_cols = to_int(matrix.scale_cols()),
          .limit = tensor_limit(matrix.spec),
          .kept = kept_scale_bits(matrix.spec.scale),
          .extent = matrix.spec.block == block::b128x128 ? Extent::tile : Extent::line};
}

// Of both sides, but for what is a block along columns.
QuantSpec spec_of(const CastTarget& target) {
  return target.rows.codes != nullptr ? target.rows.spec : in_lines(target.columns.spec);
}

// What a cast is given beside its target.
struct TileOptions {
  const unsigned* amax = nullptr;           // the tensor's; null: a pass finds it where it is needed
  const CastTarget* requantized = nullptr;  // where the last result goes, in blocks and without statistics
};

// A cast of what a producer computes.
template <class Producer>
class TileCast {
 public:
  TileCast(Gpu& gpu, const Producer& producer, Size rows, Size cols, const char* what)
      : gpu_(gpu), job_{.producer = producer}, rows_(rows), cols_(cols), what_(what) {}

  void run(const CastTarget& target, const TileOptions& options) {
    const Size width = Producer::own_results * cols_;
    const QuantSpec spec = spec_of(target);
    const bool needs_amax = scales_of(spec) == TileScales::tensor && options.amax == nullptr;
    const unsigned* amax = needs_amax ? find_amax() : options.amax;
    for (int i = 0; i < Producer::own_results; ++i) {
      job_.results[i] = {tile_side(target.rows, amax), tile_side(target.columns, amax), partial_sums(target, width),
                         to_int(width), to_int(i * cols_)};
    }
    if (options.requantized != nullptr) {
      const CastTarget& again = *options.requantized;
      job_.results[Producer::results - 1] = {tile_side(again.rows, nullptr), tile_side(again.columns, nullptr), nullptr,
                                             to_int(cols_)};
    }
    if (target.rows.codes != nullptr) job_.statistics = target.slot.statistics;
    job_.elements = static_cast<unsigned long long>(rows_ * width);
    launch_for(spec.format);
    if (target.column_sums == nullptr) return;
    add_partial_sums(gpu_, {job_.results[0].partial_sums, rows_ / tile_size, width, width}, 1.0F, target.column_sums);
  }

 private:
  // Blocks are E4M3 only.
  void launch_for(Format format) {
    constexpr ColumnBlocks some = Producer::results == 1 ? ColumnBlocks::tiles : ColumnBlocks::mixed;
    const bool in_tiles = std::any_of(std::begin(job_.results), std::end(job_.results),
                                      [](const TileResult& result) { return result.columns.extent == Extent::tile; });
    if (in_tiles) return launch(whole_tiles_kernel<Producer, Format::e4m3, some>, job_);
    with_fp8(format, [&](auto constant) {
      launch(whole_tiles_kernel<Producer, decltype(constant)::value, ColumnBlocks::lines>, job_);
    });
  }

  template <class... Arguments>
  void launch(void (*kernel)(Arguments...), const std::type_identity_t<Arguments>&... arguments) {
    constexpr int bytes = whole_tile_bytes<Producer>;
    check(
        cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        what_);
    const dim3 grid(static_cast<unsigned>(cols_ / tile_size), static_cast<unsigned>(rows_ / tile_size));
    kernel<<<grid, tile_threads, bytes, gpu_.stream()>>>(arguments...);
    check_launch(what_);
  }

  const unsigned* find_amax() {
    unsigned* const amax = new_amax(gpu_);
    launch(whole_tiles_amax_kernel<Producer>, job_.producer, amax);
    return amax;
  }

  float* partial_sums(const CastTarget& target, Size width) {
    if (target.column_sums == nullptr) return nullptr;
    return reinterpret_cast<float*>(
        gpu_.workspace(Slot::sums, static_cast<std::size_t>(column_sums_bytes(rows_, width))));
  }

  Gpu& gpu_;
  TileJob<Producer> job_;
  Size rows_;
  Size cols_;  // of a result
  const char* what_;
};

template <Function F>
void run_forward(Gpu& gpu, const Activation& op, const CastTarget& target) {
  TileCast(gpu, ActivationTiles<F>(op), op.x.rows, op.out.cols_count(), "activation").run(target, {});
}

template <Function F>
void run_backward(Gpu& gpu, const ActivationBackward& op, const CastTarget& target, const CastTarget* requantized) {
  const View& dy = op.out_gradient;
  TileCast(gpu, GradientTiles<F>(op), dy.rows, dy.cols, "activation_backward")
      .run(target, {.requantized = requantized});
}

}  // namespace

TileScales whole_tile_scales(const View& x, const CastTarget& target) {
  const bool rows = target.rows.codes != nullptr;
  const bool columns = target.columns.codes != nullptr;
  const bool vectors = x.format == Format::bf16 && x.row_stride() % 8 == 0 && x.cols % tile_size == 0 &&
                       reinterpret_cast<std::uintptr_t>(x.data) % 16 == 0;
  const bool summed = target.column_sums == nullptr || columns;
  const bool alike = !rows || !columns || target.rows.spec == in_lines(target.columns.spec);
  if (!(rows || columns) || !vectors || !summed || !alike) return TileScales::none;
  if (x.rows == 0 || x.rows > most_tiles_down * tile_size) return TileScales::none;
  if ((rows && !is_whole(target.rows)) || (columns && !is_whole(target.columns))) return TileScales::none;
  return scales_of(spec_of(target));
}

unsigned* new_amax(Gpu& gpu) {
  auto* amax = gpu.workspace<unsigned>(Slot::scales, tensor_amaxes);
  check(cudaMemsetAsync(amax, 0, sizeof(*amax), gpu.stream()), "clearing an amax");
  return amax;
}

void cast_whole_tiles(Gpu& gpu, const View& x, const CastTarget& target, const unsigned* amax) {
  TileCast(gpu, MatrixTiles(x), x.rows, x.cols, "cast").run(target, {.amax = amax});
}

void cast_activation(Gpu& gpu, const Activation& op, const CastTarget& target) {
  switch (op.kind) {
    case ActivationKind::gelu:
      return run_forward<Function::gelu>(gpu, op, target);
    case ActivationKind::relu:
      return run_forward<Function::relu>(gpu, op, target);
    case ActivationKind::swiglu:
      return run_forward<Function::swiglu>(gpu, op, target);
  }
}

void cast_activation_backward(Gpu& gpu, const ActivationBackward& op, const CastTarget& target,
                              const CastTarget* requantized) {
  switch (op.kind) {
    case ActivationKind::gelu:
      return run_backward<Function::gelu>(gpu, op, target, requantized);
    case ActivationKind::relu:
      return run_backward<Function::relu>(gpu, op, target, requantized);
    case ActivationKind::swiglu:
      return run_backward<Function::swiglu>(gpu, op, target, requantized);
  }
}

FusedTarget row_blocks(const CastTarget& target) {
  const TileSide side = tile_side(target.rows, nullptr);
  FusedTarget fused;
  fused.format = target.rows.spec.format;
  fused.rows = side.codes;
  fused.row_bytes = side.row_bytes;
  fused.rows_scale = side.tensor_scale;
  fused.blocks = {.scales = side.scales, .cols = side.scale_cols, .limit = side.limit, .kept = side.kept};
  fused.statistics = target.slot.statistics;
  return fused;
}

void cast_norm(Gpu& gpu, const AddNorm& op, const CastTarget& target, const unsigned* amax) {
  TileCast(gpu, NormTiles(op.sum, op.stats, op.norm), op.sum.rows, op.sum.cols, "norm").run(target, {.amax = amax});
}

}  // namespace quaver::cuda
