#include "engine/cpu/weight_update.h"

#include "formats/simd.h"

namespace quaver {

namespace {

bool is_f32(const CodeMatrix& matrix) { return matrix.spec.format == Format::f32; }

}  // namespace

float* load_moment(const CodeMatrix& moment, Size first, Size rows, float* buffer) {
  if (is_f32(moment)) return reinterpret_cast<float*>(moment.codes) + first * moment.cols;
  decode_rows(moment, first, rows, buffer, moment.cols);
  return buffer;
}

void store_moment(const CodeMatrix& moment, Size first, Size rows, const float* values, const RandomKey& random) {
  if (is_f32(moment)) return;
  CastStatistics ignored;
  *moment.tensor_scale = 1;
  quantize_tile({values, moment.cols, first, rows}, {.side = Side::rows, .random = random, .detail = Detail::counts},
                moment, ignored);
}

void store_weight(const StoredWeight& weight, Size first, Size rows, float* values) {
  const View& view = weight.view;
  if (view.format == Format::f32) return;
  CodeMatrix codes;
  codes.spec.format = view.format;
  codes.spec.rounding = weight.rounding;
  codes.rows = view.rows;
  codes.cols = view.cols;
  codes.codes = static_cast<std::byte*>(view.data);
  float one = 1;
  codes.tensor_scale = &one;
  CastStatistics ignored;
  quantize_tile({values, codes.cols, first, rows},
                {.side = Side::rows, .random = weight.random, .detail = Detail::counts}, codes, ignored);
  rows_as_floats(view, first, rows, values);
}

QUAVER_SIMD void compare_rows(const ComparedRows& rows, Size count, UpdateStatistics& statistics) {
  const float* before = rows.before;
  const float* direction = rows.direction;
  const float* after = rows.after;
  const float decay = rows.decay;
  double weight2 = 0;
  double update2 = 0;
  std::uint64_t unmoved = 0;
#pragma omp simd reduction(+ : weight2, update2, unmoved)
  for (Size i = 0; i < count; ++i) {
    const float delta = after[i] - before[i];
    weight2 += static_cast<double>(after[i] * after[i]);
    update2 += static_cast<double>(delta * delta);
    const bool wanted = direction[i] != 0.0F || decay * before[i] != 0.0F;
    unmoved += delta == 0.0F && wanted ? 1U : 0U;
  }
  statistics.weight2 += weight2;
  statistics.update2 += update2;
  statistics.unmoved += unmoved;
  statistics.count += static_cast<std::uint64_t>(count);
}

void add_up(const std::vector<UpdateStatistics>& parts, UpdateStatistics& total) {
  total = {};
  for (const UpdateStatistics& part : parts) {
    total.weight2 += part.weight2;
    total.update2 += part.update2;
    total.unmoved += part.unmoved;
    total.count += part.count;
  }
}

}  // namespace quaver
