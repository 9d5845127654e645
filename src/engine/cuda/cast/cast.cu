#include <bit>
#include <cmath>
#include <string>

#include "engine/cuda/cast/amax_pass.h"
#include "engine/cuda/cast/cast.h"
#include "engine/cuda/cast/cast_kernels.cuh"
#include "engine/cuda/cast/cast_launch.cuh"
#include "engine/cuda/cast/cast_statistics.h"
#include "engine/cuda/cast/column_sums.h"
#include "engine/cuda/cast/whole_tiles.h"
#include "engine/cuda/workspace_sizes.h"
#include "quaver/error.h"

namespace quaver::cuda {

namespace {

using namespace casts;

bool takes_own_amax(const QuantSpec& spec) {
  return (spec.block == block::tensor && spec.policy == ScalePolicy::current) || is_e4m3(spec.scale);
}

bool has_whole_rows(const QuantSpec& spec) { return spec.block == block::row; }

ScaleRule scale_rule(const QuantSpec& spec) {
  ScaleRule rule;
  rule.format = spec.scale;
  if (takes_own_amax(spec)) {
    rule.tensor = spec.policy == ScalePolicy::none ? TensorScale::one : TensorScale::current;
  } else if (has_given_scale(spec)) {
    rule.tensor = TensorScale::given;
  }
  rule.max = info(spec.format).max;
  rule.limit = std::ldexp(rule.max, -spec.margin);
  rule.tensor_limit = tensor_limit(spec);
  rule.kept = kept_scale_bits(spec.scale);
  rule.shrink = spec.shrink;
  return rule;
}

SideJob side_job(const CodeMatrix& matrix, Side side, const CastTarget& target) {
  SideJob job;
  const QuantSpec& spec = matrix.spec;
  job.codes = matrix.codes;
  if (job.codes == nullptr) return job;
  job.block_scales = matrix.block_scales;
  job.tensor_scale = matrix.tensor_scale;
  job.length = matrix.cols;
  job.row_bytes = matrix.row_bytes();
  job.scale_cols = matrix.scale_cols();
  job.has_blocks = matrix.has_block_scales();
  job.block_cols = spec.block.cols;
  job.block_rows_shift = spec.block.rows > 0 ? std::countr_zero(static_cast<unsigned>(spec.block.rows)) : 0;
  job.block_cols_shift = spec.block.cols > 0 ? std::countr_zero(static_cast<unsigned>(spec.block.cols)) : 0;
  const std::size_t vector = spec.format == Format::e2m1 ? 8 : 16;
  job.aligned = reinterpret_cast<std::uintptr_t>(matrix.codes) % vector == 0 &&
                static_cast<std::size_t>(matrix.row_bytes()) % vector == 0;
  job.rounding = spec.rounding;
  job.rotation = spec.rotation;
  job.signs = packed_signs(target.key);
  job.rule = scale_rule(spec);
  job.key = target.key;
  if (side == Side::columns) job.key.stream ^= columns_stream;
  job.micro_step = target.micro_step;
  job.given_scale = target.slot.scale;
  return job;
}

// Lays out the results of the amax pass and points both sides to them. Returns false where no amax is needed.
bool plan_amax_pass(Gpu& gpu, const CastTarget& target, CastJob& job, AmaxJob& pass) {
  const bool rows = job.rows.codes != nullptr;
  const bool columns = job.columns.codes != nullptr;
  const bool row_tensor = rows && takes_own_amax(target.rows.spec);
  const bool column_tensor = columns && takes_own_amax(target.columns.spec);
  const bool row_lines = rows && has_whole_rows(target.rows.spec);
  const bool column_lines = columns && has_whole_rows(target.columns.spec);
  if (!row_tensor && !column_tensor && !row_lines && !column_lines) return false;

  const auto bytes = static_cast<std::size_t>(amax_bytes(job.x.rows, job.x.cols));
  auto* found = reinterpret_cast<Bits*>(gpu.workspace(Slot::scales, bytes));
  check(cudaMemsetAsync(found, 0, bytes, gpu.stream()), "clearing amaxes");
  pass.x = job.x;
  pass.rows = {row_tensor || row_lines, job.rows.rotation, job.rows.signs, nullptr, nullptr};
  pass.columns = {column_lines || (column_tensor && job.columns.rotation != Rotation::none), job.columns.rotation,
                  job.columns.signs, nullptr, nullptr};
  if (row_tensor) job.rows.tensor_amax = pass.rows.tensor_amax = found;
  if (row_lines) job.rows.line_amax = pass.rows.line_amax = found + tensor_amaxes;
  if (column_lines) job.columns.line_amax = pass.columns.line_amax = found + tensor_amaxes + job.x.rows;
  if (!column_tensor) return true;
  // Without a rotation of its own the columns' amax is that of x as stored, which the rowwise traversal finds anyway.
  const bool rows_see_it = job.columns.rotation == Rotation::none && pass.rows.rotation == Rotation::none;
  AmaxVisit& visit = rows_see_it ? pass.rows : pass.columns;
  visit.wanted = true;
  if (visit.tensor_amax == nullptr) visit.tensor_amax = rows_see_it ? found : found + 1;
  job.columns.tensor_amax = visit.tensor_amax;
  return true;
}

bool is_in_lines(const SideJob& side, const QuantSpec& spec) {
  const bool whole = spec.block == block::tensor || spec.block == block::row || spec.block == block::b1x128;
  return side.codes == nullptr || (whole && spec.rounding == Rounding::nearest_even && spec.rotation == Rotation::none);
}

// Whether cast_line_tiles does the job, whose codes have this format.
bool takes_lines(const CastJob& job, const CastTarget& target, Format format) {
  return is_fp8(format) && job.x.format == Format::bf16 && job.x.aligned && job.x.factor == 1 &&
         is_in_lines(job.rows, target.rows.spec) && is_in_lines(job.columns, target.columns.spec);
}

void run_cast(Gpu& gpu, const CastJob& job, const CastTarget& target, Format format) {
  if (takes_lines(job, target, format)) {
    return with_fp8(format, [&](auto constant) {
      launch_tiles<__nv_bfloat16>(gpu, cast_line_tiles<decltype(constant)::value>, job.x, "cast_line_tiles", job);
    });
  }
  with_tile_type(job.x, [&](auto element) {
    using T = decltype(element);
    with_format(format, [&](auto constant) {
      launch_tiles<T>(gpu, cast_tiles<T, decltype(constant)::value>, job.x, "cast_tiles", job);
    });
  });
}

// Kernels cast both sides from one read where their codes have one format.
void run_sides(Gpu& gpu, const CastJob& job, const CastTarget& target) {
  const bool rows = job.rows.codes != nullptr;
  const bool columns = job.columns.codes != nullptr;
  if (!rows || !columns || target.rows.spec.format == target.columns.spec.format) {
    return run_cast(gpu, job, target, rows ? target.rows.spec.format : target.columns.spec.format);
  }
  CastJob first = job;
  first.columns = {};
  first.partial_sums = nullptr;
  run_cast(gpu, first, target, target.rows.spec.format);
  CastJob second = job;
  second.rows = {};
  second.statistics = nullptr;
  run_cast(gpu, second, target, target.columns.spec.format);
}

CastTarget resolved(CastTarget target) {
  target.rows.spec = quaver::resolved(target.rows.spec, target.host_scale);
  target.columns.spec = quaver::resolved(target.columns.spec, target.host_scale);
  return target;
}

bool has_2d_blocks(const CodeMatrix& matrix) { return matrix.codes != nullptr && matrix.spec.block.rows > 1; }

void check_shape(const View& x, const CodeMatrix& matrix, Size rows, Size cols) {
  if (matrix.codes == nullptr || (matrix.rows == rows && matrix.cols == cols)) return;
  throw Error("a matrix of " + std::to_string(x.rows) + " by " + std::to_string(x.cols) + " does not fit codes of " +
                  std::to_string(matrix.rows) + " by " + std::to_string(matrix.cols),
              "the columns side holds the transpose of its source, the rows side the same shape");
}

// Like the CPU engine, which copies f32 unless there is more to do.
bool is_observed(const CastTarget& target) {
  if (target.slot.statistics == nullptr || target.rows.codes == nullptr) return false;
  const bool stored_as_is = target.rows.spec.format == Format::f32 && target.columns.codes == nullptr;
  return !stored_as_is || target.detail == Detail::full;
}

CastJob cast_job(Gpu& gpu, const View& x, float factor, const CastTarget& target) {
  check_shape(x, target.rows, x.rows, x.cols);
  check_shape(x, target.columns, x.cols, x.rows);
  CastJob job;
  job.x = source_of(x, factor);
  job.rows = side_job(target.rows, Side::rows, target);
  job.columns = side_job(target.columns, Side::columns, target);
  job.has_2d_blocks = has_2d_blocks(target.rows) || has_2d_blocks(target.columns);
  job.statistics = is_observed(target) ? target.slot.statistics : nullptr;
  if (target.column_sums != nullptr) {
    const auto bytes = static_cast<std::size_t>(column_sums_bytes(x.rows, x.cols));
    job.partial_sums = reinterpret_cast<float*>(gpu.workspace(Slot::sums, bytes));
  }
  return job;
}

void finish_sums(Gpu& gpu, const CastJob& job, const CastTarget& target) {
  const Source& x = job.x;
  if (target.column_sums == nullptr || x.rows * x.cols == 0) return;
  add_partial_sums(gpu, {job.partial_sums, x.tiles_down(), x.cols, x.cols}, 1.0F, target.column_sums);
}

}  // namespace

void cast(Gpu& gpu, View x, float factor, const CastTarget& given) {
  const CastTarget target = resolved(given);
  CastJob job = cast_job(gpu, x, factor, target);
  if (factor == 1 && whole_tile_scales(x, target) != TileScales::none) {
    cast_whole_tiles(gpu, x, target);
  } else {
    AmaxJob pass;
    if (plan_amax_pass(gpu, target, job, pass)) run_amax_pass(gpu, pass);
    run_sides(gpu, job, target);
    finish_sums(gpu, job, target);
  }
  if (job.statistics != nullptr && target.detail == Detail::full) {
    gather_full_statistics(gpu, job.x, job.rows, target.rows.spec.format, job.statistics);
  }
}

}  // namespace quaver::cuda
