#include "engine/cpu/site_writer.h"

namespace quaver {

namespace {

CodeMatrix with_resolved_policy(CodeMatrix matrix, float scale) {
  matrix.spec = resolved(matrix.spec, scale);
  return matrix;
}

void add_rows(const float* values, Size rows, Size cols, float* sums) {
  for (Size r = 0; r < rows; ++r) {
    for (Size c = 0; c < cols; ++c) sums[c] += values[r * cols + c];
  }
}

}  // namespace

SiteWriter::SiteWriter(Workspace& workspace, QuantizedTensor& out, const Casting& casting)
    : out_(out), casting_(casting), rows_(out.rows_count()), cols_(out.cols_count()), scale_(out.site().scale) {
  if (out.has_rows()) rows_matrix_ = with_resolved_policy(out.rows_matrix(), scale_);
  if (out.has_own_columns()) columns_matrix_ = with_resolved_policy(out.columns_matrix(), scale_);
  const int threads = omp_get_max_threads();
  seen_.resize(static_cast<std::size_t>(threads));
  const SiteWritePlan plan(out, threads);
  mode_ = plan.mode;
  if (plan.floats > 0) memory_ = workspace.floats(slot_of(mode_), plan.floats);
  if (mode_ != Mode::staged) prepare(nullptr);
  if (plan.sums_floats > 0) {
    sums_ = workspace.floats(Workspace::Slot::reductions, plan.sums_floats);
    std::fill_n(sums_, plan.sums_floats, 0.0F);
  }
}

// Scales of both sides; `values` is read only where they depend on the whole tensor.
void SiteWriter::prepare(const float* values) {
  const RandomKey key = key_of(casting_, out_.site());
  if (out_.has_rows())
    prepare_scales({values, rows_, cols_}, {.side = Side::rows, .given_scale = scale_, .random = key}, rows_matrix_);
  if (out_.has_own_columns())
    prepare_scales({values, rows_, cols_}, {.side = Side::columns, .given_scale = scale_, .random = key},
                   columns_matrix_);
}

float* SiteWriter::tile_memory(Size first, int thread) {
  switch (mode_) {
    case Mode::direct:
      return reinterpret_cast<float*>(rows_matrix_.codes) + first * cols_;
    case Mode::tile_by_tile:
      return memory_ + thread * tile_rows * cols_;
    case Mode::staged:
      break;
  }
  return memory_ + first * cols_;
}

void SiteWriter::finish_tile(Size first, Size count, const float* values, int thread) {
  if (sums_ != nullptr) add_rows(values, count, cols_, sums_ + thread * cols_);
  CastStatistics& stats = seen_[static_cast<std::size_t>(thread)];
  const bool only_look = mode_ == Mode::direct && casting_.detail == Detail::counts;
  if (mode_ != Mode::staged && !only_look) cast_tile(first, count, values, stats);
}

void SiteWriter::cast_tile(Size first, Size count, const float* values, CastStatistics& stats) {
  const RandomKey key = key_of(casting_, out_.site());
  if (out_.has_rows()) {
    quantize_tile({values, cols_, first, count}, {.side = Side::rows, .random = key, .detail = casting_.detail},
                  rows_matrix_, stats);
  }
  if (!out_.has_own_columns()) return;
  CastStatistics ignored;  // the same elements, already counted
  quantize_tile({values, cols_, first, count}, {.side = Side::columns, .random = key, .detail = Detail::counts},
                columns_matrix_, ignored);
}

void SiteWriter::cast_staged() {
  prepare(memory_);
  const Size tiles = (rows_ + tile_rows - 1) / tile_rows;
#pragma omp parallel if (tiles > 1)
  {
    CastStatistics& stats = seen_[static_cast<std::size_t>(omp_get_thread_num())];
#pragma omp for schedule(static)
    for (Size tile = 0; tile < tiles; ++tile) {
      const Size first = tile * tile_rows;
      cast_tile(first, std::min(tile_rows, rows_ - first), memory_ + first * cols_, stats);
    }
  }
}

void SiteWriter::finish() {
  if (mode_ == Mode::staged) cast_staged();
  if (sums_ != nullptr) {
    float* target = out_.column_sums.f32();
    for (std::size_t thread = 0; thread < seen_.size(); ++thread) {
      add_rows(sums_ + static_cast<Size>(thread) * cols_, 1, cols_, target);
    }
  }
  if (!casting_.observe) return;
  for (const CastStatistics& stats : seen_) out_.site().seen.merge(stats);
}

}  // namespace quaver
