// Quantized matrices in the memory of a device: casts, values and GEMMs on the caller's stream.
#include "api/extent.h"
#include "api/quantized_state.h"

#include "quaver/error.h"

namespace quaver {

namespace {

bool is_gpu(const DeviceMatrix& matrix) { return matrix.device == DeviceKind::cuda; }

void check_matrix(const DeviceMatrix& matrix, const char* name) {
  checked_count(matrix.rows, matrix.cols, static_cast<std::size_t>(matrix.rows) * static_cast<std::size_t>(matrix.cols),
                name);
  const std::string what(name);
  if (matrix.device == DeviceKind::automatic) throw Error(what + " is on no device", "say cpu or cuda");
  if (matrix.values == nullptr) throw Error(what + " is null", "pass the address of its values");
  const bool known = matrix.format == Format::f32 || (is_gpu(matrix) && matrix.format == Format::bf16);
  if (!known) {
    throw Error(what + " is in " + std::string(info(matrix.format).name),
                is_gpu(matrix) ? "pass f32 or bf16" : "pass f32");
  }
  if (is_gpu(matrix) && reinterpret_cast<std::uintptr_t>(matrix.values) % 16 != 0) {
    throw Error(what + " does not begin at a multiple of 16 bytes", "copy it into memory of its own");
  }
}

void check_memory(std::span<std::byte> given, std::size_t needed, const char* name) {
  if (given.size() < needed || (needed > 0 && given.data() == nullptr)) {
    throw Error(std::string(name) + " has " + std::to_string(given.size()) + " bytes and the cast needs " +
                    std::to_string(needed),
                "ask memory() for the number");
  }
  if (reinterpret_cast<std::uintptr_t>(given.data()) % 16 != 0) {
    throw Error(std::string(name) + " does not begin at a multiple of 16 bytes",
                "pass memory that was allocated for it");
  }
}

auto memory_of(Arena& arena) {
  return [&arena](std::size_t bytes) { return arena.take_saved(bytes); };
}

Sharing sharing_on(const DeviceMatrix& matrix) { return is_gpu(matrix) ? Sharing::apart : Sharing::where_exact; }

View view_of(const DeviceMatrix& matrix) { return {matrix.values, matrix.format, matrix.rows, matrix.cols}; }

LayerEngine::Stream stream_of(const DeviceMatrix& matrix) {
  return is_gpu(matrix) ? LayerEngine::Stream(matrix.stream) : std::nullopt;
}

std::shared_ptr<LayerEngine> engine_for(const DeviceMatrix& matrix) {
  return LayerEngine::of(matrix.device, matrix.gpu);
}

// The codes of a [rows × cols] matrix, rowwise.
QuantizedTensor place(Site& site, Size rows, Size cols, Sharing sharing, Arena& kept) {
  return {site, rows, cols, Copies::rows_only, sharing, memory_of(kept)};
}

// A columnwise cast is a rowwise one of the transpose, so that its statistics are those of its own scales.
QuantizedTensor place_transpose(Site& site, const DeviceMatrix& x, Arena& scratch) {
  site.spec = {.rows = {.format = Format::e4m3}, .columns = {.format = x.format}};
  return {site, x.rows, x.cols, Copies::columns_only, Sharing::where_exact, memory_of(scratch)};
}

View transpose(Engine& engine, const DeviceMatrix& x, Site& site, Arena& scratch) {
  QuantizedTensor turned = place_transpose(site, x, scratch);
  const Casting casting{.observe = false};
  engine.run(Quantize{view_of(x), turned, casting});
  return {turned.columns_matrix().codes, x.format, x.cols, x.rows};
}

}  // namespace

CastMemory QuantizedMatrix::memory(const DeviceMatrix& x, const CastSettings& settings) {
  check_cast(settings);
  check_matrix(x, "the matrix to cast");
  Arena kept;
  Arena scratch;
  const bool turned = settings.side == Side::columns;
  Site site;
  if (turned) place_transpose(site, x, scratch);
  site.spec = {settings.spec, settings.spec};
  place(site, turned ? x.cols : x.rows, turned ? x.rows : x.cols, sharing_on(x), kept);
  return {kept.peak(), scratch.peak()};
}

QuantizedMatrix::QuantizedMatrix(const DeviceMatrix& x, const CastSettings& settings, const DeviceMemory& memory) {
  const CastMemory needed = QuantizedMatrix::memory(x, settings);
  check_memory(memory.kept, needed.kept, "the memory of codes");
  check_memory(memory.scratch, needed.scratch, "the scratch memory");
  const auto state = std::make_shared<State>();
  state->settings = settings;
  state->engine = engine_for(x);
  state->gpu = x.gpu;
  state->stream = x.stream;
  state->engine->run(stream_of(x), [&](Engine& engine) {
    Arena kept(memory.kept.data(), memory.kept.size());
    Arena scratch(memory.scratch.data(), memory.scratch.size());
    View values = view_of(x);
    Casting casting{.seed = settings.seed, .step = settings.step, .detail = settings.detail};
    state->site = state->engine->take_site(engine);
    Site& site = *state->site;
    site.scale = 0;
    site.stream = settings.stream;
    if (settings.side == Side::columns) {
      values = transpose(engine, x, site, scratch);
      site.stream ^= columns_stream;
    }
    site.spec = {settings.spec, settings.spec};
    site.scale = has_given_scale(settings.spec) ? settings.scale : 0;
    QuantizedTensor codes = place(site, values.rows, values.cols, sharing_on(x), kept);
    engine.run(Quantize{values, codes, casting});
    state->matrix = codes.rows_matrix();
    state->matrix.spec = resolved(settings.spec, settings.scale);
  });
  state_ = state;
}

float QuantizedMatrix::tensor_scale() const {
  if (!on_gpu()) return *state_->matrix.tensor_scale;
  float found = 0;
  state_->engine->run(state_->stream, [&](Engine& engine) {
    engine.device().download(state_->matrix.tensor_scale, &found, sizeof(found));
  });
  return found;
}

const CastStatistics& QuantizedMatrix::statistics() const {
  const State& state = *state_;
  if (state.site == nullptr) return state.statistics;
  state.engine->run(on_gpu() ? LayerEngine::Stream(state.stream) : std::nullopt, [&](Engine& engine) {
    if (state.read) return;
    Site* const sites[] = {state.site.get()};
    engine.wait_for_statistics(sites);
    state.statistics = state.site->seen;
    state.read = true;
  });
  return state.statistics;
}

namespace {

void require_on(const DeviceMatrix& out, const QuantizedMatrix& matrix, int gpu) {
  if (matrix.on_gpu() == is_gpu(out) && (!is_gpu(out) || gpu == out.gpu)) return;
  throw Error("the codes are not where the result is to be", "cast the matrix on that device");
}

}  // namespace

void QuantizedMatrix::dequantize(const DeviceMatrix& out) const {
  const State& state = *state_;
  check_matrix(out, "the matrix to dequantize into");
  require_on(out, *this, state.gpu);
  if (out.rows != rows() || out.cols != cols()) {
    throw Error("the matrix to dequantize into is " + std::to_string(out.rows) + " × " + std::to_string(out.cols),
                "it needs " + std::to_string(rows()) + " × " + std::to_string(cols()));
  }
  engine_for(out)->run(stream_of(out), [&](Engine& engine) {
    engine.run(Dequantize{state.matrix, state.random(), view_of(out)});
  });
}

void gemm(const QuantizedMatrix& a, const QuantizedMatrix& b, const DeviceMatrix& out, Accumulator accumulator) {
  check_gemm(a, b);
  check_matrix(out, "the result of the GEMM");
  require_on(out, a, a.state_->gpu);
  require_on(out, b, b.state_->gpu);
  if (out.rows != a.rows() || out.cols != b.rows()) {
    throw Error("the result of the GEMM is " + std::to_string(out.rows) + " × " + std::to_string(out.cols),
                "it needs " + std::to_string(a.rows()) + " × " + std::to_string(b.rows()));
  }
  engine_for(out)->run(stream_of(out), [&](Engine& engine) {
    engine.run(Gemm{.a = {a.state_->matrix}, .b = {b.state_->matrix}, .out = view_of(out), .accumulator = accumulator});
  });
}

}  // namespace quaver
