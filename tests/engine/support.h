// What tests of engines share: matrices with memory, quantized tensors with memory, plain references in double, and the
// specs of every kind of site.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace quaver::test {

using Doubles = std::vector<double>;

inline std::size_t index(Size i) { return static_cast<std::size_t>(i); }

// An FP32 matrix with its own memory.
struct Matrix {
  Matrix(Size rows_, Size cols_, float fill = 0) : rows(rows_), cols(cols_), values(index(rows_ * cols_), fill) {}

  View view() { return {values.data(), Format::f32, rows, cols}; }
  float& operator()(Size r, Size c) { return values[index(r * cols + c)]; }
  float operator()(Size r, Size c) const { return values[index(r * cols + c)]; }
  Doubles doubles() const { return {values.begin(), values.end()}; }

  Size rows;
  Size cols;
  std::vector<float> values;
};

inline Matrix random_matrix(Size rows, Size cols, std::uint32_t stream, float std = 1, float mean = 0) {
  Matrix matrix(rows, cols);
  random_normals({42, 0, stream}, 0, matrix.values.data(), rows * cols);
  for (float& value : matrix.values) value = mean + std * value;
  return matrix;
}

inline Matrix to_floats(const Doubles& values, Size rows, Size cols) {
  Matrix matrix(rows, cols);
  std::transform(values.begin(), values.end(), matrix.values.begin(), [](double x) { return static_cast<float>(x); });
  return matrix;
}

inline SiteSpec both(const QuantSpec& spec) { return {spec, spec}; }

// A tensor in a site, with the memory of both.
struct Stored {
  Stored(const SiteSpec& spec, Size rows, Size cols, Copies copies = Copies::both, const std::string& name = "site/x") {
    site.name = name;
    site.spec = spec;
    site.stream = stream_of(name.c_str());
    tensor = QuantizedTensor(site, rows, cols, copies, Sharing::where_exact, [this](std::size_t bytes) {
      memory.emplace_back(bytes, std::byte{0xA5});
      return memory.back().data();
    });
  }
  Stored(const Stored&) = delete;
  Stored& operator=(const Stored&) = delete;

  Site site;
  std::vector<std::vector<std::byte>> memory;  // codes and scales, rows then columns
  QuantizedTensor tensor;
};

// Codes and scales that mean something; the padding between the tensor's scale and the blocks' does not.
inline std::vector<std::byte> bytes_of(const CodeMatrix& matrix) {
  std::vector<std::byte> bytes(matrix.codes, matrix.codes + matrix.code_bytes());
  const auto append = [&](const float* values, Size count) {
    const auto* data = reinterpret_cast<const std::byte*>(values);
    bytes.insert(bytes.end(), data, data + static_cast<std::size_t>(count) * sizeof(float));
  };
  append(matrix.tensor_scale, 1);
  if (matrix.has_block_scales()) append(matrix.block_scales, matrix.scale_rows() * matrix.scale_cols());
  return bytes;
}

inline std::vector<std::byte> bytes_of(const QuantizedTensor& tensor) {
  std::vector<std::byte> bytes = bytes_of(tensor.rows_matrix());
  if (tensor.has_own_columns()) {
    const std::vector<std::byte> columns = bytes_of(tensor.columns_matrix());
    bytes.insert(bytes.end(), columns.begin(), columns.end());
  }
  return bytes;
}

// The values of a code matrix, [rows × cols].
inline Doubles values_of(const CodeMatrix& matrix) {
  std::vector<float> decoded(index(matrix.rows * matrix.cols));
  decode_rows(matrix, 0, matrix.rows, decoded.data(), matrix.cols);
  Doubles values(decoded.begin(), decoded.end());
  for (double& value : values) value *= static_cast<double>(*matrix.tensor_scale);
  return values;
}

// The values of an operand with the reduction along its columns.
inline Doubles values_of(const Operand& operand) {
  const Doubles values = values_of(operand.matrix);
  if (!operand.transposed) return values;
  Doubles transposed(values.size());
  for (Size r = 0; r < operand.matrix.rows; ++r) {
    for (Size c = 0; c < operand.matrix.cols; ++c) {
      transposed[index(c * operand.matrix.rows + r)] = values[index(r * operand.matrix.cols + c)];
    }
  }
  return transposed;
}

// a[m × k]·b[n × k]ᵀ
inline Doubles product(const Doubles& a, const Doubles& b, Size m, Size n, Size k) {
  Doubles out(index(m * n), 0.0);
  for (Size i = 0; i < m; ++i) {
    for (Size j = 0; j < n; ++j) {
      for (Size p = 0; p < k; ++p) out[index(i * n + j)] += a[index(i * k + p)] * b[index(j * k + p)];
    }
  }
  return out;
}

// ‖actual − expected‖ / ‖expected‖
template <class Actual>
double relative_error(const Actual& actual, const Doubles& expected) {
  double difference = 0;
  double norm = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double d = static_cast<double>(actual[i]) - expected[i];
    difference += d * d;
    norm += expected[i] * expected[i];
  }
  return std::sqrt(difference / std::max(norm, 1e-300));
}

// Every element within `tolerance` of the largest expected magnitude.
template <class Actual>
void expect_close(const Actual& actual, const Doubles& expected, double tolerance, const std::string& what) {
  ASSERT_EQ(actual.size(), expected.size()) << what;
  double largest = 1e-30;
  for (const double value : expected) largest = std::max(largest, std::abs(value));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(actual[i]), expected[i], tolerance * largest) << what << " at " << i;
  }
}

// d f / d x[i] by central differences in double; the error is of the order of 1e-9.
template <class Function>
double slope(const Function& f, Doubles& x, std::size_t i) {
  constexpr double h = 1e-5;
  const double before = x[i];
  x[i] = before + h;
  const double above = f(x);
  x[i] = before - h;
  const double below = f(x);
  x[i] = before;
  return (above - below) / (2 * h);
}

template <class Function>
Doubles gradient(const Function& f, Doubles x) {
  Doubles result(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) result[i] = slope(f, x, i);
  return result;
}

inline double dot(const Doubles& a, const Doubles& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
  return sum;
}

// AdamW's first step on one parameter, its moments still zero.
struct FirstAdamWStep {
  FirstAdamWStep(Matrix& weight_, Matrix& gradient_)
      : weight(weight_),
        gradient(gradient_),
        m(both({}), weight.rows, weight.cols),
        v(both({}), weight.rows, weight.cols) {
    for (Stored* moment : {&m, &v}) std::fill(moment->memory[0].begin(), moment->memory[0].end(), std::byte{0});
  }

  AdamW operation(float learning_rate) {
    return {.weight = weight.view(),
            .gradient = gradient.view(),
            .moment1 = m.tensor.rows_matrix(),
            .moment2_root = v.tensor.rows_matrix(),
            .gradient_factor = &gradient_factor,
            .summary = &summary,
            .learning_rate = learning_rate,
            .beta1 = 0.9F,
            .beta2 = 0.95F,
            .epsilon = 1e-8F,
            .decay = 0,
            .bias_correction1 = 0.1F,
            .bias_correction2 = 0.05F,
            .random = {}};
  }

  Matrix& weight;
  Matrix& gradient;
  Stored m;
  Stored v;
  float gradient_factor = 1;
  GradientSummary summary;
};

// How the three roles of a linear layer are stored under each recipe.
struct LayerSpecs {
  std::string name;
  SiteSpec x;
  SiteSpec w;
  SiteSpec dy;
  double error = 0;  // relative, that a GEMM of normal numbers may have from storing its operands so
};

// For the names of tests, which have letters, digits and underscores.
inline std::string recipe_name(const testing::TestParamInfo<LayerSpecs>& instance) {
  std::string name = instance.param.name;
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

inline std::vector<LayerSpecs> all_layer_specs() {
  std::vector<LayerSpecs> all;
  const auto high_precision = [&](const char* name, Format format, double error) {
    const SiteSpec spec = both({.format = format});
    all.push_back({name, spec, spec, spec, error});
  };
  high_precision("fp32", Format::f32, 1e-6);
  high_precision("tf32", Format::tf32, 1e-3);
  high_precision("bf16", Format::bf16, 6e-3);
  high_precision("fp16", Format::f16, 1e-3);
  for (const auto& [name, policy] : {std::pair{"fp8-current", ScalePolicy::current},
                                     {"fp8-delayed", ScalePolicy::delayed},
                                     {"fp8-static", ScalePolicy::fixed},
                                     {"fp8-unit", ScalePolicy::none}}) {
    const SiteSpec forward = both({.format = Format::e4m3, .policy = policy});
    all.push_back({name, forward, forward, both({.format = Format::e5m2, .policy = policy}), 0.1});
  }
  const QuantSpec row{.format = Format::e4m3, .block = block::row, .policy = ScalePolicy::current};
  all.push_back({"fp8-row", both(row), both(row), both(row), 0.06});
  const QuantSpec bf16{.format = Format::bf16};
  all.push_back({"fp8-row-bf16-wgrad", {row, bf16}, both(row), {row, bf16}, 0.06});
  const QuantSpec line{.format = Format::e4m3, .block = block::b1x128, .policy = ScalePolicy::current};
  QuantSpec square = line;
  square.block = block::b128x128;
  all.push_back({"fp8-block", both(line), both(square), both(line), 0.06});
  QuantSpec mx{
      .format = Format::e4m3, .block = block::b1x32, .scale = ScaleFormat::e8m0, .policy = ScalePolicy::current};
  all.push_back({"mxfp8", both(mx), both(mx), both(mx), 0.06});
  mx.format = Format::e2m1;
  QuantSpec mx_backward = mx;
  mx_backward.rounding = Rounding::stochastic;
  mx_backward.rotation = Rotation::hadamard;
  mx_backward.shrink = 0.75F;
  all.push_back({"mxfp4", {mx, mx_backward}, {mx, mx_backward}, both(mx_backward), 0.6});
  const QuantSpec nv{
      .format = Format::e2m1, .block = block::b1x16, .scale = ScaleFormat::e4m3, .policy = ScalePolicy::current};
  QuantSpec nv_square = nv;
  nv_square.block = block::b16x16;
  QuantSpec nv_rotated = nv;
  nv_rotated.rotation = Rotation::hadamard;
  QuantSpec nv_gradient = nv;
  nv_gradient.rounding = Rounding::stochastic;
  QuantSpec nv_gradient_rotated = nv_gradient;
  nv_gradient_rotated.rotation = Rotation::hadamard;
  all.push_back({"nvfp4", {nv, nv_rotated}, both(nv_square), {nv_gradient, nv_gradient_rotated}, 0.6});
  return all;
}

}  // namespace quaver::test
