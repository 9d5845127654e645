#include "nn/parameter.h"

#include <algorithm>
#include <array>
#include <utility>

#include "quaver/error.h"

namespace quaver {

namespace {

constexpr Size alignment = 256;

Size aligned(Size bytes) { return (bytes + alignment - 1) / alignment * alignment; }

Size gradient_bytes_of(const Parameter& parameter) { return aligned(parameter.count() * 4); }

Size quantized_size(Parameter& parameter, Sharing sharing) {
  Size total = 0;
  const auto measure = [&](std::size_t bytes) {
    total += aligned(static_cast<Size>(bytes));
    return static_cast<std::byte*>(nullptr);
  };
  const QuantizedTensor measured(*parameter.site, parameter.rows, parameter.cols, Copies::both, sharing, measure);
  return total;
}

QuantizedTensor laid_out(Parameter& parameter, Sharing sharing, std::byte* memory) {
  const auto take = [&](std::size_t bytes) {
    return std::exchange(memory, memory + aligned(static_cast<Size>(bytes)));
  };
  return {*parameter.site, parameter.rows, parameter.cols, Copies::both, sharing, take};
}

// Codes and scales of a weight lie together, the rows' codes first.
std::byte* memory_of(const QuantizedTensor& codes) { return codes.rows_matrix().codes; }

// Bytes of codes and scales that others need: without columnwise codes that are transposes of the rowwise ones.
Size traveling_bytes(Parameter& parameter, Sharing sharing) {
  const QuantizedTensor& codes = parameter.quantized;
  const SiteSpec& spec = parameter.site->spec;
  const bool transposes = codes.has_own_columns() && columns_share_rows(spec.rows, spec.columns) &&
                          info(spec.rows.format).storage_bits == 8;
  return transposes ? codes.columns_matrix().codes - memory_of(codes) : quantized_size(parameter, sharing);
}

void sort_by_owner(std::vector<Parameter*>& parameters) { std::ranges::stable_sort(parameters, {}, &Parameter::owner); }

// High precision of the format that the weight has already.
bool stores_uncast(const Site& site, Format master) {
  const QuantSpec& rows = site.spec.rows;
  return rows.format == master && columns_share_rows(rows, site.spec.columns) && !is_low_precision(rows.format);
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
  const Format format = parameter.master.format;
  encode_array(format, values.data(), 1.0F, count, codes + first * info(format).storage_bits / 8);
}

}  // namespace

bool Parameter::is_cast() const { return site != nullptr && !stores_uncast(*site, master.format); }

Parameter& Parameters::add(Parameter parameter) {
  parameter.section = parameter.code_section = section_;
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

Size Parameters::frozen_count() const {
  Size total = 0;
  for (const Parameter& parameter : list_) total += parameter.frozen && !parameter.averages ? parameter.count() : 0;
  return total;
}

// The largest first, each to the rank that has the least so far.
void Parameters::deal_out(const ShardPlace& place) {
  place_ = place;
  std::vector<Parameter*> by_size;
  for (Parameter& parameter : list_) by_size.push_back(&parameter);
  std::stable_sort(by_size.begin(), by_size.end(),
                   [](const Parameter* a, const Parameter* b) { return a->count() > b->count(); });
  std::vector<Size> loads(static_cast<std::size_t>(place.ranks));
  for (Parameter* parameter : by_size) {
    const auto least = std::min_element(loads.begin(), loads.end());
    parameter->owner = static_cast<int>(least - loads.begin());
    parameter->kept = !place.has(ShardMode::optimizer) || parameter->owner == place.rank;
    *least += parameter->count();
  }
}

void Parameters::allocate(Engine& engine, Format matrices) {
  matrices_ = matrices;
  sharing_ = engine.sharing();
  one_ = engine.device().allocate(sizeof(float) * 4);
  const float one = 1;
  engine.device().upload(&one, one_.get(), sizeof(one));
  codes_.assign(list_.size(), {});
  place_weights(engine);
  place_gradients(engine);
}

Format Parameters::master_format(const Parameter& parameter) const {
  return parameter.kind == ParameterKind::vector ? Format::f32 : matrices_;
}

Size Parameters::weight_bytes_of(const Parameter& parameter) const {
  return parameter.count() * info(master_format(parameter)).storage_bits / 8;
}

// A rank that does not keep a weight needs it only where passes read it, and all the time only if they always do.
bool Parameters::weight_stays(const Parameter& parameter) const {
  return parameter.kept || parameter.kind == ParameterKind::vector ||
         (parameter.is_read_whole() && !moves_by_section());
}

void Parameters::place_weights(Engine& engine) {
  Size bytes = 0;
  for (const Parameter& parameter : list_) bytes += weight_stays(parameter) ? aligned(weight_bytes_of(parameter)) : 0;
  weights_ = engine.device().allocate(static_cast<std::size_t>(bytes));
  std::byte* next = weights_.get();
  for (Parameter& parameter : list_) {
    const bool stays = weight_stays(parameter);
    parameter.weight = {stays ? next : nullptr, master_format(parameter), parameter.rows, parameter.cols};
    parameter.master = parameter.kept ? parameter.weight : View{};
    if (stays) next += aligned(weight_bytes_of(parameter));
  }
}

bool Parameters::lasts(const Parameter& parameter) const {
  return !place_.has(ShardMode::gradients) || !parameter.completes_with_section();
}

// From the last section on, as a backward pass goes.
void Parameters::fill_buckets() {
  const bool by_section = place_.has(ShardMode::gradients);
  const Size share = count() / 8;
  std::vector<std::vector<Parameter*>> sections(static_cast<std::size_t>(section_ + 1));
  rest_ = {.first = SharedPiece::before_sections, .last = SharedPiece::before_sections};
  for (Parameter& parameter : list_) {
    if (!parameter.has_gradient()) continue;
    auto& section = sections[static_cast<std::size_t>(parameter.section)];
    (parameter.completes_with_section() ? section : rest_.parameters).push_back(&parameter);
  }
  buckets_.clear();
  Size room = 0;
  for (Size section = section_; section >= 0; --section) {
    if (room <= 0) {
      buckets_.push_back({.last = section});
      room = share;
    }
    Bucket& bucket = buckets_.back();
    bucket.first = section;
    for (Parameter* parameter : sections[static_cast<std::size_t>(section)]) {
      bucket.parameters.push_back(parameter);
      room -= parameter->count();
    }
    if (by_section) room = 0;
  }
  std::reverse(buckets_.begin(), buckets_.end());
  bucket_of_.clear();
  for (std::size_t i = 0; i < buckets_.size(); ++i) {
    bucket_of_.resize(static_cast<std::size_t>(buckets_[i].last + 1), static_cast<Size>(i));
    sort_by_owner(buckets_[i].parameters);
  }
  sort_by_owner(rest_.parameters);
}

// Those that last, one bucket behind the other; then the memory that the sections' others share.
void Parameters::place_gradients(Engine& engine) {
  fill_buckets();
  const bool shares = place_.has(ShardMode::gradients);
  const auto size_of = [granule = alignment * place_.ranks](const Bucket& bucket) {
    Size bytes = 0;
    for (const Parameter* parameter : bucket.parameters) bytes += gradient_bytes_of(*parameter);
    return (bytes + granule - 1) / granule * granule;
  };
  Size lasting = size_of(rest_);
  std::array<Size, slots> shared{};
  for (const Bucket& bucket : buckets_) {
    if (shares) {
      Size& slot = shared[slot_of(bucket.first)];
      slot = std::max(slot, size_of(bucket));
    } else {
      lasting += size_of(bucket);
    }
  }
  shared_gradient_bytes_ = shared[0] + shared[1];
  gradients_ = engine.device().allocate(static_cast<std::size_t>(lasting + shared_gradient_bytes_));
  const auto place = [&](Bucket& bucket, std::byte* memory) {
    bucket.gradients = {memory, Format::f32, 1, size_of(bucket) / 4};
    for (Parameter* parameter : bucket.parameters) {
      parameter->gradient = {memory, Format::f32, parameter->rows, parameter->cols};
      parameter->gradient_sum = parameter->gradient;
      memory += gradient_bytes_of(*parameter);
    }
  };
  place(rest_, gradients_.get());
  std::byte* next = gradients_.get() + size_of(rest_);
  for (Bucket& bucket : buckets_) {
    place(bucket, shares && slot_of(bucket.first) != 0 ? next + shared[0] : next);
    if (!shares) next += size_of(bucket);
  }
}

void Parameters::initialize(Engine& engine, std::uint64_t seed) {
  for (const Parameter& parameter : list_) {
    if (!parameter.kept) continue;
    std::vector<std::byte> codes(static_cast<std::size_t>(parameter.master.bytes()));
    const Size pieces = (parameter.count() + initialized_at_once - 1) / initialized_at_once;
#pragma omp parallel for schedule(dynamic) if (pieces > 1)
    for (Size piece = 0; piece < pieces; ++piece) initialize_piece(parameter, seed, piece, codes.data());
    engine.device().upload(codes.data(), parameter.master.data, codes.size());
  }
}

// A site of high precision in the master's own format needs no codes beside the weight, where every rank has it.
bool Parameters::is_own_codes(const Parameter& parameter) const {
  const bool everywhere = !place_.has(ShardMode::optimizer) || (parameter.is_read_whole() && !moves_by_section());
  return everywhere && stores_uncast(*parameter.site, matrices_);
}

void Parameters::reserve(Engine& engine, CodeStorage& storage, Size bytes) {
  if (bytes <= storage.bytes) return;
  storage = {engine.device().allocate(static_cast<std::size_t>(bytes)), bytes};
  ++storage_moves_;
}

// Codes as the sites' specs are now: where GEMMs read them, or where the owner keeps them.
void Parameters::place_codes(Engine& engine) {
  for (std::size_t i = 0; i < list_.size(); ++i) {
    Parameter& parameter = list_[i];
    if (parameter.site == nullptr) continue;
    if (is_own_codes(parameter)) {
      parameter.quantized = QuantizedTensor(*parameter.site, parameter.weight, reinterpret_cast<float*>(one_.get()));
      continue;
    }
    if (moves_by_section() && !parameter.kept) continue;
    reserve(engine, codes_[i], quantized_size(parameter, sharing_));
    QuantizedTensor& codes = moves_by_section() ? parameter.kept_codes : parameter.quantized;
    codes = laid_out(parameter, sharing_, codes_[i].memory.get());
  }
  if (moves_by_section()) place_sections(engine);
}

// Embeddings and codes of a section, in memory that every other section shares.
void Parameters::place_sections(Engine& engine) {
  std::vector<Size> ends(static_cast<std::size_t>(section_ + 1));
  const auto take = [&](Size section, Size bytes) {
    return std::exchange(ends[static_cast<std::size_t>(section)], ends[static_cast<std::size_t>(section)] + bytes);
  };
  const auto for_each_place = [&](const auto& embedding, const auto& codes) {
    std::fill(ends.begin(), ends.end(), 0);
    for (Parameter& parameter : list_) {
      if (parameter.kind == ParameterKind::embedding) {
        embedding(parameter, take(parameter.section, aligned(weight_bytes_of(parameter))));
      }
      if (parameter.site == nullptr) continue;
      codes(parameter, take(parameter.code_section, quantized_size(parameter, sharing_)));
    }
  };
  const auto ignore = [](const Parameter&, Size) {};
  for_each_place(ignore, ignore);
  std::array<Size, slots> sizes{};
  for (Size section = 0; section <= section_; ++section) {
    Size& size = sizes[slot_of(section)];
    size = std::max(size, ends[static_cast<std::size_t>(section)]);
  }
  reserve(engine, section_memory_, sizes[0] + sizes[1]);
  const auto at = [&](Size section, Size offset) {
    return section_memory_.memory.get() + (slot_of(section) == 0 ? 0 : sizes[0]) + offset;
  };
  for_each_place([&](Parameter& parameter, Size offset) { parameter.weight.data = at(parameter.section, offset); },
                 [&](Parameter& parameter, Size offset) {
                   parameter.quantized = laid_out(parameter, sharing_, at(parameter.code_section, offset));
                 });
}

void Parameters::cast(Parameter& parameter, Engine& engine, const Casting& casting) {
  if (parameter.site == nullptr || !parameter.kept || is_own_codes(parameter)) return;
  engine.run(Quantize{parameter.master, parameter.cast_target(), parameter.is_cast() ? casting : casting.unobserved()});
}

void Parameters::quantize(Parameter& parameter, Engine& engine, const Casting& casting) {
  place_codes(engine);
  cast(parameter, engine, casting);
}

void Parameters::quantize_all(Engine& engine, const Casting& casting) {
  place_codes(engine);
  for (Parameter& parameter : list_) cast(parameter, engine, casting);
}

std::vector<SharedPiece> Parameters::shared_pieces() {
  std::vector<SharedPiece> pieces;
  for (Parameter& parameter : list_) {
    if (parameter.is_read_whole()) {
      const bool anywhere = parameter.kind == ParameterKind::vector;
      pieces.push_back({&parameter, anywhere ? SharedPiece::before_sections : parameter.section,
                        static_cast<std::byte*>(parameter.master.data), static_cast<std::byte*>(parameter.weight.data),
                        weight_bytes_of(parameter), weight_bytes_of(parameter)});
    }
    if (!parameter.quantized.valid() || parameter.quantized.is_own_codes()) continue;
    const Size travels = traveling_bytes(parameter, sharing_);
    const Size whole = quantized_size(parameter, sharing_);
    pieces.push_back({&parameter, parameter.code_section, parameter.kept ? memory_of(parameter.cast_target()) : nullptr,
                      memory_of(parameter.quantized), travels, whole, true, travels < whole});
  }
  return pieces;
}

void Parameters::clear_gradients(Engine& engine) {
  for (Parameter& parameter : list_) {
    if (parameter.has_gradient() && lasts(parameter)) engine.run(FillZero{parameter.gradient});
  }
}

void Parameters::clear_gradients(Engine& engine, Size section) {
  for (Parameter& parameter : list_) {
    if (parameter.section != section || !parameter.has_gradient() || lasts(parameter)) continue;
    engine.run(FillZero{parameter.gradient});
  }
}

Size Parameters::weight_bytes() const {
  Size total = 0;
  for (const Parameter& parameter : list_) total += weight_stays(parameter) ? weight_bytes_of(parameter) : 0;
  return total;
}

Size Parameters::gradient_bytes() const {
  Size total = shared_gradient_bytes_;
  for (const Parameter& parameter : list_) {
    total += parameter.has_gradient() && lasts(parameter) ? 4 * parameter.count() : 0;
  }
  return total;
}

Size Parameters::master_bytes() const {
  Size total = 0;
  for (const Parameter& parameter : list_) total += parameter.kept ? parameter.master.bytes() : 0;
  return total;
}

Size Parameters::quantized_bytes() const {
  Size total = section_memory_.bytes;
  for (const CodeStorage& storage : codes_) total += storage.bytes;
  return total;
}

}  // namespace quaver
