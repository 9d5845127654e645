#include "engine/cuda/cuda_engine.h"

#include <algorithm>

#include "engine/cuda/attention/attention_decode.h"
#include "engine/cuda/cast/clear_pads.h"
#include "engine/cuda/cast/transpose_codes.h"
#include "engine/cuda/cast/whole_tiles.h"
#include "engine/cuda/convolution/batch_norm.h"
#include "engine/cuda/convolution/patches.h"
#include "engine/cuda/elementwise/activation.h"
#include "engine/cuda/elementwise/combine.h"
#include "engine/cuda/gemm/decode.h"
#include "engine/cuda/norm/norm.h"
#include "engine/cuda/optimizer/muon.h"
#include "engine/cuda/ranged_engine.h"
#include "engine/cuda/vocabulary/embedding.h"
#include "engine/cuda/vocabulary/loss.h"
#include "quaver/error.h"

namespace quaver::cuda {

namespace {

// The current GPU is the thread's, and its caller may use another.
class ChosenGpu {
 public:
  explicit ChosenGpu(int index) {
    check(cudaGetDevice(&before_), "asking for the current GPU");
    if (before_ != index) check(cudaSetDevice(index), "choosing the GPU");
    changed_ = before_ != index;
  }
  ~ChosenGpu() {
    if (changed_) cudaSetDevice(before_);
  }
  ChosenGpu(const ChosenGpu&) = delete;
  ChosenGpu& operator=(const ChosenGpu&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

// A capture would hold scales and workspace as they are now, and GEMMs cannot be measured in it.
void require_uncaptured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &status), "asking whether a graph is captured");
  if (status == cudaStreamCaptureStatusNone) return;
  throw Error("a CUDA graph is being captured from the stream", "run quaver's layers outside of captured graphs");
}

}  // namespace

CudaEngine::CudaEngine(const CudaOptions& options)
    : index_(options.device),
      high_(options.high_precision),
      logits_limit_(options.logits_limit),
      gpu_(options.device, options.notice),
      own_stream_(gpu_.stream()),
      latest_stream_(own_stream_),
      device_(gpu_),
      sites_(gpu_, device_),
      gemms_(gpu_),
      attention_(gpu_, options.float_attention) {
  one_ = device_.allocate(4 * sizeof(float));
  const float one = 1;
  device_.upload(&one, one_.get(), sizeof(one));
}

// What other streams were given uses memory that is freed now.
CudaEngine::~CudaEngine() {
  if (latest_work_ == nullptr) return;
  cudaEventSynchronize(latest_work_);
  cudaEventDestroy(latest_work_);
}

void CudaEngine::on_stream(void* stream, const std::function<void()>& work) {
  const ChosenGpu chosen(index_);
  const auto wanted = static_cast<cudaStream_t>(stream);
  require_uncaptured(wanted);
  if (latest_work_ == nullptr) {
    check(cudaEventCreateWithFlags(&latest_work_, cudaEventDisableTiming), "making an event");
    check(cudaEventRecord(latest_work_, latest_stream_), "recording an event");
  }
  if (wanted != latest_stream_) check(cudaStreamWaitEvent(wanted, latest_work_), "waiting for another stream");
  latest_stream_ = wanted;
  // The caller may destroy the stream before the next call: its end is recorded now, also where work() throws.
  struct Return {
    CudaEngine& engine;
    ~Return() {
      cudaEventRecord(engine.latest_work_, engine.gpu_.stream());
      engine.gpu_.switch_stream(engine.own_stream_);
    }
  } const back{*this};
  gpu_.switch_stream(wanted);
  work();
}

std::string CudaEngine::name() const {
  return gpu_.name() + " (" + gemms_.describe() + ", " + attention_.describe() + ")";
}

bool CudaEngine::can_fuse(const QuantizedTensor& out, const Casting& casting) const {
  return cuda::can_fuse(out, casting, high_);
}

// Operations of images leave column sums to the general cast: no convolution here has a bias.
bool CudaEngine::fuses_without_sums(const QuantizedTensor& out, const Casting& casting) const {
  return can_fuse(out, casting) && out.column_sums.empty();
}

FusedTarget CudaEngine::fused_target(const QuantizedTensor& out, const Casting& casting) {
  const Site& site = out.site();
  const SiteSlot slot = sites_.slot(site, casting.observe);
  FusedTarget target;
  target.format = site.spec.rows.format;
  target.rows = out.rows_matrix().codes;
  target.rows_scale = out.rows_matrix().tensor_scale;
  target.columns = out.columns_matrix().codes;
  target.row_bytes = to_int(out.rows_matrix().row_bytes());
  target.column_bytes = to_int(out.columns_matrix().row_bytes());
  target.columns_scale = out.columns_matrix().tensor_scale;
  target.scale = has_given_scale(site.spec.rows) ? slot.scale : nullptr;
  target.statistics = slot.statistics;
  target.column_sums = out.column_sums.empty() ? nullptr : out.column_sums.f32();
  return target;
}

CastTarget CudaEngine::cast_target(const QuantizedTensor& out, const Casting& casting) {
  const Site& site = out.site();
  CastTarget target;
  target.rows = out.rows_matrix();
  target.columns = out.columns_matrix();
  target.slot = sites_.slot(site, casting.observe);
  target.host_scale = site.scale;
  target.key = {casting.seed, casting.step, site.stream};
  target.micro_step = casting.micro_step;
  target.detail = casting.detail;
  target.column_sums = out.column_sums.empty() ? nullptr : out.column_sums.f32();
  return target;
}

FusedTarget CudaEngine::high_precision_target(View matrix) const {
  FusedTarget target;
  target.format = high_;
  target.rows = static_cast<std::byte*>(matrix.data);
  return target;
}

View CudaEngine::staging(Size rows, Size cols) {
  View view{nullptr, high_, rows, cols};
  view.data = gpu_.workspace(Slot::large, static_cast<std::size_t>(view.bytes()));
  return view;
}

template <class Produce>
void CudaEngine::write(QuantizedTensor& out, const Casting& casting, bool fuse, Produce&& produce) {
  if (fuse) return produce(fused_target(out, casting));
  const View staged = staging(out.rows_count(), out.cols_count());
  produce(high_precision_target(staged));
  cast(gpu_, staged, 1, cast_target(out, casting));
}

void CudaEngine::run(const FillZero& op) {
  check(cudaMemsetAsync(op.x.data, 0, static_cast<std::size_t>(op.x.bytes()), gpu_.stream()), "clearing a matrix");
}

void CudaEngine::run(const Quantize& op) {
  if (op.out.is_own_codes()) return;
  const bool fp8 = is_low_precision(op.out.site().spec.rows.format);
  if (can_fuse(op.out, op.casting) && (fp8 || op.x.format == high_)) {
    cast_fused(gpu_, op.x, op.factor, fused_target(op.out, op.casting));
  } else {
    cast(gpu_, op.x, op.factor, cast_target(op.out, op.casting));
  }
  clear_pads(gpu_, op.out);
}

void CudaEngine::run(const Dequantize& op) { dequantize(gpu_, op); }

void CudaEngine::run(const TransposeCodes& op) {
  transpose_codes(gpu_, op);
  clear_pads(gpu_, op.to);
}

void CudaEngine::run(const SumColumns& op) {
  FusedTarget sums_alone;
  sums_alone.format = op.x.format;
  sums_alone.column_sums = op.sums.f32();
  cast_fused(gpu_, op.x, 1, sums_alone);
}

void CudaEngine::run(const Gemm& op) { gemms_.run(op); }

void CudaEngine::run(const Embed& op) { cuda::embed(gpu_, op); }

void CudaEngine::run(const EmbedBackward& op) { cuda::embed_backward(gpu_, op); }

bool CudaEngine::norm_has_room(Size width, int targets) {
  if (norm_can_write_columns(gpu_, width, targets)) return true;
  gpu_.notice("norms of width " + std::to_string(width) + " cast their results in a pass of its own: " +
              std::to_string(targets) + " of them do not fit into this GPU's shared memory");
  return false;
}

// The norm's kernel measures the rows and casts what it can; the rest is computed again from the sum, in tiles.
bool CudaEngine::cast_in_tiles(const AddNorm& op) {
  CastTarget target = cast_target(op.out, op.casting);
  const TileScales scales = op.sum.format == op.residual.format ? fused_tile_scales(op.sum, target) : TileScales::none;
  if (scales == TileScales::tensor) {
    FusedTarget amax_alone;
    amax_alone.amax = new_amax(gpu_);
    cuda::add_norm(gpu_, op, amax_alone);
    cast_norm(gpu_, op, target, amax_alone.amax);
    return true;
  }
  if (scales == TileScales::none || target.rows.codes == nullptr) return false;
  cuda::add_norm(gpu_, op, row_blocks(target));
  target.rows = {};
  if (target.columns.codes != nullptr) cast_norm(gpu_, op, target);
  return true;
}

void CudaEngine::run(const AddNorm& op) {
  clear_pads(gpu_, op.out);
  if (cast_in_tiles(op)) return;
  const bool fuse = can_fuse(op.out, op.casting) && (!op.out.has_own_columns() || norm_has_room(op.residual.cols, 1));
  write(op.out, op.casting, fuse, [&](const FusedTarget& target) { cuda::add_norm(gpu_, op, target); });
}

void CudaEngine::run(const AddNormBackward& op) {
  const Size width = op.sum.cols;
  FusedTarget branch;
  FusedTarget requantized;
  const Casting unobserved = op.casting.unobserved();
  const bool fuse_branch = op.branch_gradient != nullptr && can_fuse(*op.branch_gradient, op.casting) &&
                           (!op.branch_gradient->has_own_columns() || norm_has_room(width, 1));
  if (fuse_branch) branch = fused_target(*op.branch_gradient, op.casting);
  if (branch.rows == static_cast<std::byte*>(op.gradient.data)) branch.rows = nullptr;  // written as the gradient
  const bool alongside = !branch || branch.is_fp8();  // one kernel writes both, or neither, in FP8
  const bool fuse_out = op.out != nullptr && op.out->has_own_columns() && can_fuse(*op.out, unobserved) && alongside &&
                        norm_has_room(width, 2);
  if (op.branch_gradient != nullptr) clear_pads(gpu_, *op.branch_gradient);
  if (fuse_out) {
    clear_pads(gpu_, *op.out);
    requantized = fused_target(*op.out, unobserved);
  }
  CastTarget staged;
  if (op.branch_gradient != nullptr && !fuse_branch) staged = cast_target(*op.branch_gradient, op.casting);
  const bool in_tiles = !requantized && fused_tile_scales(op.gradient, staged) == TileScales::tensor;
  if (in_tiles) branch.amax = new_amax(gpu_);
  cuda::add_norm_backward(gpu_, op, branch, requantized);
  if (in_tiles) {
    cast_whole_tiles(gpu_, op.gradient, staged, branch.amax);
  } else if (op.branch_gradient != nullptr && !fuse_branch) {
    cast(gpu_, op.gradient, 1, staged);
  }
  if (op.out == nullptr || fuse_out) return;
  const AddNorm again{
      .norm = op.norm, .residual = op.sum, .sum = op.sum, .stats = op.stats, .out = *op.out, .casting = unobserved};
  const CastTarget target = cast_target(*op.out, unobserved);
  if (fused_tile_scales(op.sum, target) == TileScales::none) return run(again);
  clear_pads(gpu_, *op.out);
  cast_norm(gpu_, again, target);
}

void CudaEngine::run(const NormAdd& op) {
  const View normed = staging(op.branch.rows, op.branch.cols);
  QuantizedTensor unused;
  cuda::add_norm(gpu_,
                 {.norm = op.norm,
                  .residual = op.branch,
                  .sum = op.branch,
                  .stats = op.stats,
                  .out = unused,
                  .casting = op.casting},
                 high_precision_target(normed));
  run(Combine{.x = op.residual, .y = normed, .keep = op.keep, .add = op.add, .out = op.sum});
  if (op.out != nullptr) run(Quantize{op.sum, *op.out, op.casting});
}

void CudaEngine::run(const NormAddBackward& op) {
  if (op.next.empty()) {
    run(Combine{.x = op.input_gradient, .y = op.input_gradient, .keep = op.add, .add = 0, .out = op.gradient});
  } else {
    run(Combine{.x = op.next, .y = op.input_gradient, .keep = op.keep, .add = op.add, .out = op.gradient});
  }
  run(AddNormBackward{.norm = op.norm,
                      .sum = op.branch,
                      .stats = op.stats,
                      .out_gradient = op.gradient,
                      .keep = 0,
                      .add = op.factor,
                      .gradient = staging(op.branch.rows, op.branch.cols),
                      .branch_gradient = &op.branch_gradient,
                      .gradients = op.gradients,
                      .casting = op.casting});
}

void CudaEngine::run(const Combine& op) { cuda::combine(gpu_, op); }

void CudaEngine::run(const PrepareHeads& op) { cuda::prepare_heads(gpu_, rotary_, op); }

void CudaEngine::run(const PrepareHeadsBackward& op) { cuda::prepare_heads_backward(gpu_, rotary_, op); }

void CudaEngine::run(const Attention& op) { attention_.forward(op); }

void CudaEngine::run(const AttentionBackward& op) { attention_.backward(op); }

void CudaEngine::run(const StoreKeyValues& op) { cuda::store_key_values(gpu_, op); }

void CudaEngine::run(const AttentionDecode& op) { cuda::attention_decode(gpu_, op); }

void CudaEngine::run(const Activation& op) {
  clear_pads(gpu_, op.out);
  const CastTarget tiles = cast_target(op.out, op.casting);
  if (fused_tile_scales(op.x, tiles) != TileScales::none) return cast_activation(gpu_, op, tiles);
  write(op.out, op.casting, can_fuse(op.out, op.casting),
        [&](const FusedTarget& target) { cuda::activation(gpu_, op, target); });
}

bool CudaEngine::cast_in_tiles(const ActivationBackward& op) {
  const CastTarget target = cast_target(op.in_gradient, op.casting);
  const TileScales scales = fused_tile_scales(op.x, target);
  if (scales == TileScales::none || fused_tile_scales(op.out_gradient, target) == TileScales::none) return false;
  const Casting unobserved = op.casting.unobserved();
  CastTarget out;
  if (op.out != nullptr) out = cast_target(*op.out, unobserved);
  const bool alongside = scales == TileScales::blocks && fused_tile_scales(op.out_gradient, out) == TileScales::blocks;
  if (alongside) clear_pads(gpu_, *op.out);
  cast_activation_backward(gpu_, op, target, alongside ? &out : nullptr);
  if (op.out != nullptr && !alongside) run(op.recompute(unobserved));
  return true;
}

void CudaEngine::run(const ActivationBackward& op) {
  const Casting unobserved = op.casting.unobserved();
  const bool fuse = can_fuse(op.in_gradient, op.casting);
  const bool fp8 = fuse && is_low_precision(op.in_gradient.site().spec.rows.format);
  const bool fuse_out = op.out != nullptr && fp8 && op.out->has_own_columns() && can_fuse(*op.out, unobserved);
  const FusedTarget requantized = fuse_out ? fused_target(*op.out, unobserved) : FusedTarget{};
  clear_pads(gpu_, op.in_gradient);
  if (fuse_out) clear_pads(gpu_, *op.out);
  if (cast_in_tiles(op)) return;
  write(op.in_gradient, op.casting, fuse,
        [&](const FusedTarget& target) { cuda::activation_backward(gpu_, op, target, requantized); });
  if (op.out == nullptr || fuse_out) return;
  run(op.recompute(unobserved));
}

void CudaEngine::chunk_backward(const CrossEntropy& op, Size first, View logits, const Operand& x_columns) {
  Site& site = *op.logits_gradient;
  QuantizedTensor gradient(site, logits, reinterpret_cast<float*>(one_.get()));
  if (logits_are_cast(site.spec, logits.format)) {
    const Size bytes = logits_codes_bytes(site, logits.rows, logits.cols, sharing());
    std::byte* next = gpu_.workspace(Slot::logits_codes, static_cast<std::size_t>(bytes));
    gradient = QuantizedTensor(site, logits.rows, logits.cols, Copies::both, sharing(), [&](std::size_t piece) {
      std::byte* const taken = next;
      next += round_up_256(static_cast<Size>(piece));
      return taken;
    });
    Casting casting = op.casting;
    casting.step += static_cast<std::uint32_t>(first) * 2654435761U;  // chunks must not share random words
    run(Quantize{logits, gradient, casting});
  }
  run(Gemm{.pass = GemmPass::dgrad,
           .a = gradient.rows(),
           .b = op.w.columns(),
           .out = op.x_gradient.row_range(first, logits.rows),
           .alpha = op.input_factor,
           .accumulator = op.accumulators.head_dgrad});
  if (op.weight_gradient.empty()) return;
  run(Gemm{.pass = GemmPass::wgrad,
           .a = gradient.columns(),
           .b = x_columns,
           .out = op.weight_gradient,
           .alpha = op.weight_factor,
           .accumulate = true,
           .accumulator = op.accumulators.wgrad});
}

// The part of a transposed copy that belongs to a chunk of tokens, as a matrix of its own: cuBLASLt reads codes with
// a stride, but not scales.
CodeMatrix CudaEngine::cut_columns(const CodeMatrix& matrix, Size first, Size count) {
  if (count == matrix.cols) return matrix;
  CodeMatrix part = columns_shape(matrix, count);
  const auto copy = [&](void* to, Size to_row, const void* from, Size from_row, Size rows) {
    check(cudaMemcpy2DAsync(to, static_cast<std::size_t>(to_row), from, static_cast<std::size_t>(from_row),
                            static_cast<std::size_t>(to_row), static_cast<std::size_t>(rows), cudaMemcpyDeviceToDevice,
                            gpu_.stream()),
          "copying a chunk of the head's input");
  };
  part.codes = gpu_.workspace(Slot::columns, static_cast<std::size_t>(columns_bytes(part)));
  const Size bits = info(matrix.spec.format).storage_bits;
  copy(part.codes, part.row_bytes(), matrix.codes + first * bits / 8, matrix.row_bytes(), matrix.rows);
  if (!scales_are_cut(matrix)) return part;
  part.block_scales = reinterpret_cast<float*>(part.codes + round_up_256(part.code_bytes()));
  copy(part.block_scales, part.scale_cols() * 4, matrix.block_scales + first / matrix.spec.block.cols,
       matrix.scale_cols() * 4, matrix.scale_rows());
  return part;
}

void CudaEngine::run(const CrossEntropy& op) {
  const Size tokens = op.x.rows_count();
  const Size vocab = op.w.rows_count();
  const bool train = op.logits_gradient != nullptr;
  const Size stride = logits_stride(vocab);
  const Size row_bytes = stride * info(high_).storage_bits / 8;
  const Size chunk = logits_chunk(tokens, vocab, high_, op.logits_gradient, logits_limit_);
  auto* memory = gpu_.workspace(Slot::large, static_cast<std::size_t>(chunk * row_bytes));
  for (Size first = 0; first < tokens; first += chunk) {
    const View logits{memory, high_, std::min(chunk, tokens - first), vocab, stride};
    const CodeMatrix x_rows = slice_rows(op.x.rows_matrix(), first, logits.rows);
    run(Gemm{.a = {x_rows, false},
             .b = op.w.rows(),
             .out = logits,
             .alpha = op.logit_factor,
             .accumulator = op.accumulators.fprop});
    softmax_loss(gpu_, {.logits = logits,
                        .targets = op.targets.data() + first,
                        .gradient = train ? LossGradient::in_place : LossGradient::none,
                        .gradient_factor = op.gradient_factor,
                        .gradient_scale = op.gradient_scale,
                        .z_loss = op.z_loss,
                        .loss_sum = op.loss_sum,
                        .row_losses = op.row_losses != nullptr ? op.row_losses + first : nullptr,
                        .correct = op.correct});
    if (!train) continue;
    const bool apart = op.x.has_own_columns();
    chunk_backward(
        op, first, logits,
        apart ? Operand{cut_columns(op.x.columns_matrix(), first, logits.rows), false} : Operand{x_rows, true});
  }
}

void CudaEngine::run(const SumInOrder& op) { cuda::sum_in_order(gpu_, op); }

void CudaEngine::run(const MeasureGradients& op) { meter_.measure(gpu_, op); }

void CudaEngine::run(const ClipGradients& op) { meter_.clip(gpu_, op); }

void CudaEngine::run(const AdamW& op) {
  cuda::adamw(gpu_, op);
  if (op.quantized != nullptr) run(Quantize{op.weight, *op.quantized, *op.casting});
}

void CudaEngine::run(const Orthogonalize& op) { cuda::orthogonalize(gpu_, gemms_, op); }

void CudaEngine::run(const Muon& op) {
  cuda::muon(gpu_, gemms_, op);
  if (op.quantized != nullptr) run(Quantize{op.weight, *op.quantized, *op.casting});
}

void CudaEngine::run(const Patches& op) {
  clear_pads(gpu_, op.out);
  write(op.out, op.casting, fuses_without_sums(op.out, op.casting),
        [&](const FusedTarget& target) { cuda::patches(gpu_, op, high_, target); });
}

void CudaEngine::run(const PatchesBackward& op) { cuda::patches_backward(gpu_, op); }

void CudaEngine::run(const BatchNorm& op) { cuda::batch_norm(gpu_, op); }

void CudaEngine::run(const BatchNormBackward& op) {
  clear_pads(gpu_, op.in_gradient);
  const float* means = batch_norm_backward_means(gpu_, op);
  write(op.in_gradient, op.casting, fuses_without_sums(op.in_gradient, op.casting),
        [&](const FusedTarget& target) { cuda::batch_norm_backward(gpu_, op, means, target); });
}

void CudaEngine::run(const AveragePool& op) {
  clear_pads(gpu_, op.out);
  write(op.out, op.casting, fuses_without_sums(op.out, op.casting),
        [&](const FusedTarget& target) { cuda::average_pool(gpu_, op, target); });
}

void CudaEngine::run(const AveragePoolBackward& op) { cuda::average_pool_backward(gpu_, op); }

void CudaEngine::run(const MovingAverage& op) { cuda::moving_average(gpu_, op); }

}  // namespace quaver::cuda

extern "C" __attribute__((visibility("default"))) quaver::GpuEngine* quaver_make_cuda_engine(
    const quaver::CudaOptions* options) {
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    throw quaver::Error("CUDA finds no GPU on this machine",
                        "check `nvidia-smi` and CUDA_VISIBLE_DEVICES, or use train.device = \"cpu\"");
  }
  if (options->device >= count) {
    throw quaver::Error(
        "there is no GPU number " + std::to_string(options->device) + ": this machine has " + std::to_string(count),
        "choose a smaller number");
  }
  return new quaver::cuda::RangedEngine(std::make_unique<quaver::cuda::CudaEngine>(*options));
}
