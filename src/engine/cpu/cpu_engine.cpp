#include "engine/cpu/cpu_engine.h"

#include <algorithm>
#include <cblas.h>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <omp.h>

#include "engine/cpu/gemm.h"
#include "engine/cpu/site_writer.h"

namespace quaver {

namespace {

// OpenBLAS has one number of threads for the whole process. Where it changes while a GEMM begins, that GEMM waits
// forever for threads that its team does not have. So engines with one number run together, and those with different
// numbers in turn, operation by operation.
class BlasThreads {
 public:
  void enter(int threads) {
    std::unique_lock lock(mutex_);
    const std::uint64_t came = turn_;
    const bool joins = users_ > 0 && threads_ == threads && waiting_ == 0;
    ++waiting_;
    left_.wait(lock, [&] { return joins || users_ == 0 || (threads_ == threads && turn_ != came); });
    --waiting_;
    if (users_++ > 0) return;
    ++turn_;
    threads_ = threads;
    before_ = openblas_get_num_threads();
    if (before_ != threads) openblas_set_num_threads(threads);
    left_.notify_all();
  }

  void leave() {
    const std::lock_guard lock(mutex_);
    if (--users_ > 0) return;
    if (before_ != threads_) openblas_set_num_threads(before_);
    left_.notify_all();
  }

 private:
  std::mutex mutex_;
  std::condition_variable left_;
  int threads_ = 0;  // of those that run
  int before_ = 0;
  int users_ = 0;
  int waiting_ = 0;  // for a turn of theirs: nobody joins the one that lasts
  std::uint64_t turn_ = 0;
};

// Never freed: threads may compute while the process ends.
BlasThreads& blas_threads() {
  static auto& threads = *new BlasThreads;  // NOLINT(cppcoreguidelines-owning-memory)
  return threads;
}

}  // namespace

// OpenBLAS may set the number of OpenMP too.
ThreadScope::ThreadScope(int threads) : openmp_before_(omp_get_max_threads()) {
  blas_threads().enter(threads);
  if (omp_get_max_threads() != threads) omp_set_num_threads(threads);
}

ThreadScope::~ThreadScope() {
  blas_threads().leave();
  if (omp_get_max_threads() != openmp_before_) omp_set_num_threads(openmp_before_);
}

CpuEngine::CpuEngine(int threads)
    : threads_(threads > 0 ? threads : omp_get_num_procs()), device_(threads_, operations_.workspace()) {}

std::string CpuEngine::name() const { return "cpu (" + std::to_string(threads_) + " threads)"; }

void CpuOperations::run(const FillZero& op) { std::memset(op.x.data, 0, static_cast<std::size_t>(op.x.bytes())); }

const float* rows_as_floats(const View& x, Size first, Size count, float* buffer) {
  if (x.format == Format::f32) return x.f32() + first * x.cols;
  decode_array(x.format, x.row_data(first), 1.0F, count * x.cols, buffer);
  return buffer;
}

void CpuOperations::run(const Quantize& op) {
  if (op.out.is_own_codes()) return;
  SiteWriter(workspace_, op.out, op.casting).write([&](Size first, Size rows, float* tile, int) {
    const float* values = rows_as_floats(op.x, first, rows, tile);
    if (values != tile || op.factor != 1.0F) {
      for (Size i = 0; i < rows * op.x.cols; ++i) tile[i] = op.factor * values[i];
    }
  });
}

void CpuOperations::run(const Dequantize& op) {
  const CodeMatrix& from = op.from;
#pragma omp parallel for schedule(static) if (op.out.count() > worth_waking)
  for (Size row = 0; row < from.rows; ++row) {
    float* values = op.out.f32() + row * from.cols;
    decode_rows(from, row, 1, values, from.cols);
    for (Size c = 0; c < from.cols; ++c) values[c] *= *from.tensor_scale;
    if (from.spec.rotation != Rotation::none) unrotate_row(values, from.cols, op.random);
  }
}

void CpuOperations::run(const TransposeCodes& op) {
  const CodeMatrix& from = op.from;
#pragma omp parallel for schedule(static)
  for (Size c = 0; c < from.cols; ++c) {
    for (Size r = 0; r < from.rows; ++r) op.to.codes[c * op.to.row_bytes() + r] = from.codes[r * from.row_bytes() + c];
  }
  *op.to.tensor_scale = *from.tensor_scale;
  if (!from.has_block_scales()) return;
  const Size rows = from.scale_rows();
  const Size cols = from.scale_cols();
  for (Size i = 0; i < rows * cols; ++i) op.to.block_scales[i % cols * rows + i / cols] = from.block_scales[i];
}

// Threads share the columns, so that the order of a sum does not depend on their number.
void CpuOperations::run(const SumColumns& op) {
  const View& x = op.x;
#pragma omp parallel
  {
    const Size share = (x.cols + omp_get_num_threads() - 1) / omp_get_num_threads();
    const Size first = std::min(x.cols, share * omp_get_thread_num());
    const Size last = std::min(x.cols, first + share);
    for (Size r = 0; r < x.rows; ++r) {
      const float* row = x.f32() + r * x.cols;
      for (Size c = first; c < last; ++c) op.sums.f32()[c] += row[c];
    }
  }
}

void CpuOperations::run(const Gemm& op) { cpu_gemm(workspace_, op); }

void CpuOperations::run(const Embed& op) {
  const Size d = op.out.cols;
#pragma omp parallel if (op.out.count() > worth_waking)
  {
    std::vector<float> buffer(static_cast<std::size_t>(2 * d));
#pragma omp for schedule(static)
    for (Size t = 0; t < op.out.rows; ++t) {
      const float* row = rows_as_floats(op.table, op.tokens[static_cast<std::size_t>(t)], 1, buffer.data());
      float* out = op.out.f32() + t * d;
      if (op.positions.empty()) {
        for (Size c = 0; c < d; ++c) out[c] = op.factor * row[c];
      } else {
        const Size first = op.first.empty() ? 0 : op.first[static_cast<std::size_t>(t / op.sequence)];
        const Size place = first + document_position(op.document_starts, t, op.sequence);
        const float* position = rows_as_floats(op.positions, place, 1, buffer.data() + d);
        for (Size c = 0; c < d; ++c) out[c] = op.factor * (row[c] + position[c]);
      }
    }
  }
}

// Threads share the columns, not the tokens: two tokens may be the same word.
void CpuOperations::run(const EmbedBackward& op) {
  const Size d = op.gradient.cols;
#pragma omp parallel
  {
    const Size share = (d + omp_get_num_threads() - 1) / omp_get_num_threads();
    const Size first = std::min(d, share * omp_get_thread_num());
    const Size last = std::min(d, first + share);
    for (Size t = 0; t < op.gradient.rows; ++t) {
      const float* gradient = op.gradient.f32() + t * d;
      if (!op.table_gradient.empty()) {
        float* row = op.table_gradient.f32() + op.tokens[static_cast<std::size_t>(t)] * d;
        for (Size c = first; c < last; ++c) row[c] += op.factor * gradient[c];
      }
      if (op.positions_gradient.empty()) continue;
      float* position = op.positions_gradient.f32() + document_position(op.document_starts, t, op.sequence) * d;
      for (Size c = first; c < last; ++c) position[c] += op.factor * gradient[c];
    }
  }
}

std::unique_ptr<Engine> make_cpu_engine(int threads) { return std::make_unique<CpuEngine>(threads); }

}  // namespace quaver
