#include "engine/cuda/gemm/gemm.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "engine/cuda/gemm/block_gemm.h"
#include "engine/cuda/gemm/decode.h"
#include "quaver/error.h"

namespace quaver::cuda {
namespace {

std::uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer);
  return static_cast<std::uint32_t>(std::min<std::uintptr_t>(address & (~address + 1), 16));
}

bool aligned(const void* pointer) { return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0; }

cudaDataType_t type_of(Format format) {
  switch (format) {
    case Format::bf16:
      return CUDA_R_16BF;
    case Format::f16:
      return CUDA_R_16F;
    case Format::e4m3:
      return CUDA_R_8F_E4M3;
    case Format::e5m2:
      return CUDA_R_8F_E5M2;
    case Format::f32:
    case Format::tf32:
    case Format::e2m1:
    case Format::e3m4:
    case Format::e3m2:
    case Format::e2m3:
    case Format::int8:
      break;
  }
  return CUDA_R_32F;
}

std::string name_of(const CodeMatrix& matrix) { return std::string(info(matrix.spec.format).name); }

std::string shape_of(const Gemm& op) {
  return std::to_string(op.a.extent()) + " × " + std::to_string(op.b.extent()) + " × " +
         std::to_string(op.a.reduction());
}

std::string text_of(const Gemm& op) {
  return "GEMM of " + name_of(op.a.matrix) + " and " + name_of(op.b.matrix) + ", " + shape_of(op);
}

void check_operands(const Gemm& op) {
  if (op.b.reduction() != op.a.reduction() || op.out.rows != op.a.extent() || op.out.cols != op.b.extent() ||
      (!op.bias.empty() && op.bias.cols != op.out.cols)) {
    throw Error(text_of(op) + ", with " + std::to_string(op.b.reduction()) + " on the other side, into [" +
                    std::to_string(op.out.rows) + " × " + std::to_string(op.out.cols) + "]: the shapes do not meet",
                "this is a defect of the layer that asked for it");
  }
  const Format out = op.out.format;
  const bool known_out = out == Format::f32 || out == Format::bf16 || out == Format::f16;
  if (!known_out || (!op.bias.empty() && op.bias.format != Format::f32)) {
    throw Error(text_of(op) + ": results are f32, bf16 or f16, and biases f32", "this is a defect of the layer");
  }
  if (op.accumulator == Accumulator::fp16 || op.accumulator == Accumulator::fp8) {
    throw Error(text_of(op) + ": sums in " + (op.accumulator == Accumulator::fp16 ? "fp16" : "fp8") +
                    " are a model that only the CPU computes",
                "set train.device = \"cpu\", or precision.accumulator to fp32, hopper or hopper-split");
  }
}

bool is_high_precision_pair(const Gemm& op) {
  const Format a = op.a.matrix.spec.format;
  return a == op.b.matrix.spec.format && !is_low_precision(a);
}

// Why tensor cores do not support these operands as stored, the reasons that hold for every shape first; empty: they
// do.
std::string why_not_native(const Gpu& gpu, const Gemm& op) {
  std::string formats = quaver::why_not_native(gpu.architecture(), gpu.name(), op.a.matrix.spec, op.b.matrix.spec);
  if (!formats.empty()) return formats;
  if (op.a.transposed || op.b.transposed) return "an operand is stored along the wrong dimension";
  if (!sizes_fit_fp8(gpu.architecture(), op)) return "their results' width is not a multiple of 8";
  const bool lies_well = aligned(op.a.matrix.codes) && aligned(op.b.matrix.codes) && aligned(op.out.data);
  return lies_well ? "" : "their memory does not begin at multiples of 16 bytes";
}

// Each reason is reported once per pair of formats, with the first shape it applies to: text generation has another
// shape for every length.
void tell_decoded(Gpu& gpu, const Gemm& op, const std::string& reason) {
  const Format as = decoded_format(op.a.matrix.spec, op.b.matrix.spec);
  const std::string through = as == Format::bf16 ? "BF16" : "FP32";
  std::string what = name_of(op.a.matrix) + " × " + name_of(op.b.matrix) + " GEMMs";
  if (is_fp8(op.a.matrix.spec.format) && is_fp8(op.b.matrix.spec.format)) what = "FP8 GEMMs";
  const bool of_shape = reason.starts_with("their ");
  gpu.notice(what + (of_shape ? " of " + shape_of(op) + ", and others like them, run through " : " run through ") +
                 through + ", exactly but at its speed: " + reason,
             what + through + reason);
}

// The operand's scales as cuBLASLt reads them: those of 1 × 128 blocks contiguous along the operand's rows, those of
// 128 × 128 blocks along the reduction, all aligned. In place where they are so already, else copied into `space`.
const float* library_scales(Gpu& gpu, const CodeMatrix& matrix, Scaling scaling, float* space) {
  const Size rows = matrix.scale_rows();
  const Size cols = matrix.scale_cols();
  switch (scaling) {
    case Scaling::none:
      return nullptr;
    case Scaling::tensor:
      if (aligned(matrix.tensor_scale)) return matrix.tensor_scale;
      pad_scales(gpu, matrix.tensor_scale, 1, 1, 1, space);
      return space;
    case Scaling::row:
      if (aligned(matrix.block_scales)) return matrix.block_scales;
      pad_scales(gpu, matrix.block_scales, rows, 1, 1, space);
      return space;
    case Scaling::vector128:
      if (cols == 1 && aligned(matrix.block_scales)) return matrix.block_scales;
      transpose_scales(gpu, matrix.block_scales, rows, cols, space);
      return space;
    case Scaling::block128:
      if (padded_scale_cols(matrix) == cols && aligned(matrix.block_scales)) return matrix.block_scales;
      pad_scales(gpu, matrix.block_scales, rows, cols, padded_scale_cols(matrix), space);
      return space;
  }
  return nullptr;
}

// What the tensors' scales multiply the result by, where the host knows: blocks lie under 1 / shrink.
float block_alpha(const Gemm& op) {
  const auto multiplier = [](const QuantSpec& spec) { return spec.block == block::tensor ? 1.0F : 1.0F / spec.shrink; };
  return op.alpha * (multiplier(op.a.matrix.spec) * multiplier(op.b.matrix.spec));
}

}  // namespace

Gemms::Gemms(Gpu& gpu) : gpu_(gpu), cache_(gpu) {
  const char* value = std::getenv("QUAVER_BLOCK_GEMM");
  const std::string wish = value == nullptr ? "" : value;
  if (wish == "own") {
    block_gemm_ = BlockGemmBy::own;
  } else if (wish == "cublaslt") {
    block_gemm_ = BlockGemmBy::library;
  } else if (!wish.empty()) {
    throw Error("QUAVER_BLOCK_GEMM=" + wish + " is not known",
                "choose own or cublaslt, or leave it unset for the fastest");
  }
}

void Gemms::run(const Gemm& op) {
  check_operands(op);
  if (op.out.count() == 0) return;
  for (const GemmPart& part : gemm_parts(gpu_.architecture(), op)) run_part(part);
}

void Gemms::run_part(const GemmPart& part) {
  const Gemm& op = part.op;
  if (is_high_precision_pair(op)) return multiply_high_precision(op);
  std::string reason = why_not_native(gpu_, op);
  if (reason.empty()) {
    if (multiply_native(op)) return;
    reason = "cuBLASLt has no kernel for them on " + gpu_.name();
  }
  if (part.kind == GemmPart::Kind::whole) tell_decoded(gpu_, op, reason);
  multiply_decoded(op);
}

Gemms::Source Gemms::stored(const CodeMatrix& matrix, Scaling scaling, Size length) {
  const Format format = matrix.spec.format;
  return {.data = matrix.codes,
          .type = type_of(format),
          .scaling = scaling,
          .length = length,
          .stride = matrix.row_bytes() * 8 / info(format).storage_bits};
}

Factor Gemms::factor_of(const Operand& operand, const Source& source, cublasOperation_t as_it_lies,
                        cublasOperation_t transposed) {
  return {.type = source.type,
          .rows = source.length,
          .cols = operand.matrix.rows,
          .stride = source.stride,
          .operation = operand.transposed ? transposed : as_it_lies,
          .alignment = alignment_of(source.data)};
}

Gemms::Sources Gemms::high_precision_sources(const Gemm& op) {
  const Format format = op.a.matrix.spec.format;
  return {.format = format,
          .a = stored(op.a.matrix, Scaling::none, op.a.matrix.cols),
          .b = stored(op.b.matrix, Scaling::none, op.b.matrix.cols),
          .compute = format == Format::tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
          .scalars = Scalars::host};
}

// Sums over the zeros behind the rows too: tensor cores are slow where a reduction is no multiple of 16.
Gemms::Sources Gemms::native_sources(const Gemm& op) {
  const CodeMatrix& a = op.a.matrix;
  const CodeMatrix& b = op.b.matrix;
  const Size padded = ceil_div(op.a.reduction(), fp8_row_multiple) * fp8_row_multiple;
  return {.format = a.spec.format,
          .a = stored(a, scaling_of(a.spec), padded),
          .b = stored(b, scaling_of(b.spec), padded),
          .compute = CUBLAS_COMPUTE_32F,
          .scalars = Scalars::host};
}

// The same questions in the same order as run asks them, of a GEMM that any kernel supports as far as shapes go.
Support Gemms::support(const QuantSpec& a, const QuantSpec& b) {
  for (const Format format : {a.format, b.format}) {
    if (!is_cast_on_gpu(format)) {
      return {SupportLevel::unavailable, "no casts to " + std::string(info(format).name) + " on a GPU"};
    }
  }
  constexpr Size extent = 1024;
  std::byte* memory = gpu_.workspace(Slot::gemm, 4096);  // only its alignment is read
  Gemm op{.a = {{a, extent, extent, memory, nullptr, nullptr}, false},
          .b = {{b, extent, extent, memory, nullptr, nullptr}, false},
          .out = {memory, Format::bf16, extent, extent}};
  const std::string none = "cuBLASLt has no kernel for them on " + gpu_.name();
  if (is_high_precision_pair(op)) {
    if (!cache_.supports(problem_of(op, high_precision_sources(op)))) return {SupportLevel::unavailable, none};
    return {SupportLevel::native, name_of(op.a.matrix) + " GEMMs of cuBLASLt"};
  }
  std::string reason = why_not_native(gpu_, op);
  if (reason.empty()) {
    if (cache_.supports(problem_of(op, native_sources(op)))) return {SupportLevel::native, "FP8 tensor cores"};
    reason = none;
  }
  const Format as = decoded_format(a, b);
  const Sources decoded{.format = as,
                        .a = {memory, type_of(as), Scaling::none, extent, extent},
                        .b = {memory, type_of(as), Scaling::none, extent, extent},
                        .compute = CUBLAS_COMPUTE_32F,
                        .scalars = Scalars::device};
  if (!cache_.supports(problem_of(op, decoded))) return {SupportLevel::unavailable, none};
  const std::string through = as == Format::bf16 ? "BF16" : "FP32";
  return {SupportLevel::emulated, "through " + through + ", exactly but at its speed: " + reason};
}

void Gemms::multiply_high_precision(const Gemm& op) {
  if (multiply(op, high_precision_sources(op))) return;
  throw Error(text_of(op) + ": cuBLASLt has no kernel for it", "choose other sizes, or another format for this layer");
}

bool Gemms::multiply_native(const Gemm& op) {
  if (!is_own(op)) {
    const bool fits = op.out.cols % size_multiple == 0;
    if (fits && multiply(op, native_sources(op))) return true;
    if (block_gemm_ == BlockGemmBy::library || !block_gemm_supports(gpu_.architecture(), op)) return false;
  }
  multiply_blockwise(op);
  return true;
}

bool Gemms::is_own(const Gemm& op) const {
  if (block_gemm_ == BlockGemmBy::library || !block_gemm_supports(gpu_.architecture(), op)) return false;
  if (block_gemm_ == BlockGemmBy::own) return true;
  return block_gemm_is_faster(block_gemm_shape(op), op.out.format, gpu_.multiprocessors());
}

void Gemms::multiply_blockwise(const Gemm& op) {
  const Size partials = block_gemm_workspace(op, gpu_.multiprocessors()) / static_cast<Size>(sizeof(float));
  run_block_gemm({.shape = block_gemm_shape(op),
                  .a = op.a.matrix.codes,
                  .b = op.b.matrix.codes,
                  .a_stride = op.a.matrix.row_bytes(),
                  .b_stride = op.b.matrix.row_bytes(),
                  .a_scales = op.a.matrix.block_scales,
                  .b_scales = op.b.matrix.block_scales,
                  .out = op.out.data,
                  .out_format = op.out.format,
                  .out_stride = op.out.row_stride(),
                  .bias = op.bias.empty() ? nullptr : op.bias.f32(),
                  .alpha = block_alpha(op),
                  .store = op.accumulate ? Store::add : Store::replace,
                  .partials = partials > 0 ? gpu_.workspace<float>(Slot::gemm, partials) : nullptr},
                 gpu_.multiprocessors(), gpu_.stream());
}

void Gemms::multiply_decoded(const Gemm& op) {
  const Format as = decoded_format(op.a.matrix.spec, op.b.matrix.spec);
  const Sources sources{.format = as,
                        .a = decoded(op.a.matrix, as, Slot::operand_a),
                        .b = decoded(op.b.matrix, as, Slot::operand_b),
                        .compute = CUBLAS_COMPUTE_32F,
                        .scalars = Scalars::device};
  if (multiply(op, sources)) return;
  throw Error(text_of(op) + ": cuBLASLt has no kernel for its decoded operands",
              "choose other sizes, or another format for this layer");
}

Gemms::Source Gemms::decoded(const CodeMatrix& matrix, Format as, Slot slot) {
  const Size bytes = decoded_bytes(matrix, as);
  if (bytes == 0) return stored(matrix, Scaling::none, matrix.cols);
  void* values = gpu_.workspace(slot, static_cast<std::size_t>(bytes));
  decode_matrix(gpu_, matrix, as, values);
  return {values, type_of(as), Scaling::none, matrix.cols, matrix.cols};
}

// Row-major out = a·bᵀ is cuBLASLt's column-major outᵀ = b·aᵀ: b is its left operand, the bias runs along its rows.
Problem Gemms::problem_of(const Gemm& op, const Sources& sources) {
  const bool rounds = rounds_result(op, sources.format);
  const Store store = op.accumulate ? Store::add : Store::replace;
  Problem problem{.left = factor_of(op.b, sources.b, CUBLAS_OP_T, CUBLAS_OP_N),
                  .right = factor_of(op.a, sources.a, CUBLAS_OP_N, CUBLAS_OP_T),
                  .left_scaling = sources.b.scaling,
                  .right_scaling = sources.a.scaling,
                  .out_type = rounds ? CUDA_R_32F : type_of(op.out.format),
                  .out_alignment = rounds ? 16 : alignment_of(op.out.data),
                  .m = op.out.cols,
                  .n = op.out.rows,
                  .k = op.a.transposed ? op.a.matrix.rows : sources.a.length,
                  .out_stride = rounds ? op.out.cols : op.out.row_stride(),
                  .compute = sources.compute,
                  .scalars = sources.scalars,
                  .store = rounds ? Store::replace : store};
  if (allows_fast_accumulation(sources.a.scaling) && op.accumulator == Accumulator::hopper) problem.sums = Sums::fast;
  return problem;
}

bool Gemms::multiply(const Gemm& op, const Sources& sources) {
  const bool rounds = rounds_result(op, sources.format);
  const bool biased = !op.bias.empty() && !rounds;
  const Store store = op.accumulate ? Store::add : Store::replace;
  Problem problem = problem_of(op, sources);
  if (biased && op.out.format != Format::f32 && !op.accumulate) problem.bias = BiasBy::library;
  if (problem.bias == BiasBy::library && !cache_.supports(problem)) {
    gpu_.notice("biases are added in a pass of its own: cuBLASLt has no such GEMM for these scales");
    problem.bias = BiasBy::nobody;
  }
  if (biased && problem.bias == BiasBy::nobody) {
    problem.store = Store::add;
  }
  if (!cache_.supports(problem)) return false;

  const Space space = arrange(op, sources);
  if (biased && problem.bias == BiasBy::nobody) fill_with_bias(gpu_, op.bias, op.out, store);
  Arguments filled = arguments(op, sources, problem, space);
  if (rounds) filled.out = space.result;
  cache_.run(problem, filled);
  if (rounds) round_result(gpu_, space.result, op.bias, op.out, store);
  return true;
}

Gemms::Space Gemms::arrange(const Gemm& op, const Sources& sources) {
  using Scales = GemmWorkspace::Scales;
  const GemmWorkspace parts(op, sources.format, sources.a.scaling == Scaling::none ? Scales::none : Scales::operands);
  std::byte* memory = gpu_.workspace(Slot::gemm, static_cast<std::size_t>(parts.total));
  return {.scalars = reinterpret_cast<float*>(memory + parts.scalars),
          .a_scales = reinterpret_cast<float*>(memory + parts.a_scales),
          .b_scales = reinterpret_cast<float*>(memory + parts.b_scales),
          .bias = memory + parts.bias,
          .result = reinterpret_cast<float*>(memory + parts.result)};
}

Arguments Gemms::arguments(const Gemm& op, const Sources& sources, const Problem& problem, const Space& space) {
  if (problem.scalars == Scalars::device) {
    write_scalars(gpu_, op.alpha, op.a.matrix.tensor_scale, op.b.matrix.tensor_scale,
                  problem.store == Store::add ? 1.0F : 0.0F, space.scalars);
  }
  if (problem.bias == BiasBy::library) round_bias(gpu_, op.bias, op.out.format, space.bias);
  return {.left = sources.b.data,
          .right = sources.a.data,
          .out = op.out.data,
          .left_scales = library_scales(gpu_, op.b.matrix, sources.b.scaling, space.b_scales),
          .right_scales = library_scales(gpu_, op.a.matrix, sources.a.scaling, space.a_scales),
          .bias = space.bias,
          .alpha = block_alpha(op),
          .scalars = space.scalars};
}

}  // namespace quaver::cuda
