#include "nn/parameter.h"

#include <algorithm>
#include <cstring>

#include "quaver/error.h"

namespace quaver {

namespace {

constexpr Size alignment = 256;

Size aligned(Size bytes) { return (bytes + alignment - 1) / alignment * alignment; }

Format format_of(const Parameter& parameter, Format matrices) {
  return parameter.kind == ParameterKind::vector ? Format::f32 : matrices;
}

Size weight_bytes_of(const Parameter& parameter, Format matrices) {
  return aligned(parameter.count() * info(format_of(parameter, matrices)).storage_bits / 8);
}

Size gradient_bytes_of(const Parameter& parameter) { return aligned(parameter.count() * 4); }

// A high-precision site of the weight's own format needs no codes beside the weight.
bool is_own_codes(const Parameter& parameter) {
  const SiteSpec& spec = parameter.site->spec;
  return spec.rows.format == parameter.weight.format && columns_share_rows(spec.rows, spec.columns) &&
         !is_low_precision(spec.rows.format);
}

Size quantized_size(Parameter& parameter, Sharing sharing) {
  Size total = 0;
  const auto measure = [&](std::size_t bytes) {
    total += aligned(static_cast<Size>(bytes));
    return static_cast<std::byte*>(nullptr);
  };
  const QuantizedTensor measured(*parameter.site, parameter.rows, parameter.cols, Copies::both, sharing, measure);
  return total;
}

constexpr Size initialized_at_once = 16384;

// One of the pieces of a weight that threads share out. A number depends on its place alone, not on who draws it.
void initialize_piece(const Parameter& parameter, std::uint64_t seed, Size piece, std::byte* codes) {
  const Size first = piece * initialized_at_once;
  const Size count = std::min(initialized_at_once, parameter.count() - first);
  std::vector<float> values(static_cast<std::size_t>(count), parameter.init_mean);
  if (parameter.init_std > 0) {
    const RandomKey key{seed, 0, stream_of(parameter.name.c_str())};
    random_normals(key, static_cast<std::uint64_t>(first), values.data(), count);
    for (float& value : values) value = parameter.init_mean + parameter.init_std * value;
  }
  const Format format = parameter.weight.format;
  encode_array(format, values.data(), 1.0F, count, codes + first * info(format).storage_bits / 8);
}

}  // namespace

Parameter& Parameters::add(Parameter parameter) {
  list_.push_back(std::move(parameter));
  return list_.back();
}

Parameter& Parameters::find(const std::string& name) {
  for (Parameter& parameter : list_) {
    if (parameter.name == name) return parameter;
  }
  throw Error("the model has no parameter '" + name + "'", "`quaver inspect` lists the parameters");
}

Size Parameters::count() const {
  Size total = 0;
  for (const Parameter& parameter : list_) total += parameter.count();
  return total;
}

void Parameters::allocate(Engine& engine, Format matrices, Size gradient_granule) {
  Size weights = 0;
  Size gradients = 0;
  for (const Parameter& parameter : list_) {
    weights += weight_bytes_of(parameter, matrices);
    gradients += gradient_bytes_of(parameter);
  }
  weights_ = engine.device().allocate(static_cast<std::size_t>(weights));
  gradients = (gradients + 4 * gradient_granule - 1) / (4 * gradient_granule) * 4 * gradient_granule;
  gradients_ = engine.device().allocate(static_cast<std::size_t>(gradients));
  gradient_view_ = {gradients_.get(), Format::f32, 1, gradients / 4};
  one_ = engine.device().allocate(sizeof(float) * 4);
  const float one = 1;
  engine.device().upload(&one, one_.get(), sizeof(one));
  Size weight_offset = 0;
  Size gradient_offset = 0;
  for (Parameter& parameter : list_) {
    parameter.weight = {weights_.get() + weight_offset, format_of(parameter, matrices), parameter.rows, parameter.cols};
    parameter.gradient = {gradients_.get() + gradient_offset, Format::f32, parameter.rows, parameter.cols};
    weight_offset += weight_bytes_of(parameter, matrices);
    gradient_offset += gradient_bytes_of(parameter);
  }
  quantized_.assign(list_.size(), {});
}

void Parameters::initialize(Engine& engine, std::uint64_t seed) {
  for (const Parameter& parameter : list_) {
    std::vector<std::byte> codes(static_cast<std::size_t>(parameter.weight.bytes()));
    const Size pieces = (parameter.count() + initialized_at_once - 1) / initialized_at_once;
#pragma omp parallel for schedule(dynamic) if (pieces > 1)
    for (Size piece = 0; piece < pieces; ++piece) initialize_piece(parameter, seed, piece, codes.data());
    engine.device().upload(codes.data(), parameter.weight.data, codes.size());
  }
}

void Parameters::quantize(Parameter& parameter, Engine& engine, const Casting& casting) {
  if (parameter.site == nullptr) return;
  std::size_t index = 0;
  while (&list_[index] != &parameter) ++index;
  if (is_own_codes(parameter)) {
    parameter.quantized = QuantizedTensor(*parameter.site, parameter.weight, reinterpret_cast<float*>(one_.get()));
    return;
  }
  CodeStorage& storage = quantized_[index];
  const Size needed = quantized_size(parameter, engine.sharing());
  if (needed > storage.bytes) {
    storage = {engine.device().allocate(static_cast<std::size_t>(needed)), needed};
    ++storage_moves_;
  }
  Size offset = 0;
  const auto take = [&](std::size_t bytes) {
    std::byte* place = storage.memory.get() + offset;
    offset += aligned(static_cast<Size>(bytes));
    return place;
  };
  parameter.quantized =
      QuantizedTensor(*parameter.site, parameter.rows, parameter.cols, Copies::both, engine.sharing(), take);
  engine.run(Quantize{parameter.weight, parameter.quantized, casting});
}

void Parameters::quantize_all(Engine& engine, const Casting& casting) {
  for (Parameter& parameter : list_) quantize(parameter, engine, casting);
}

void Parameters::clear_gradients(Engine& engine) {
  for (Parameter& parameter : list_) engine.run(FillZero{parameter.gradient});
}

Size Parameters::weight_bytes() const {
  Size total = 0;
  for (const Parameter& parameter : list_) total += parameter.weight.bytes();
  return total;
}

Size Parameters::quantized_bytes() const {
  Size total = 0;
  for (const Parameter& parameter : list_) {
    if (parameter.quantized.valid() && !parameter.quantized.is_own_codes()) total += parameter.quantized.bytes();
  }
  return total;
}

}  // namespace quaver
