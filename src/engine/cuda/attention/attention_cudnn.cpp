// The graphs follow the order of operations that cuDNN recognizes as attention: a matmul of queries and keys, scaling,
// mask, softmax by maximum and sum, and a matmul with the values; backward, its derivative with the probabilities
// recomputed from log_sum. Keys and values of grouped heads are broadcast, and their gradients summed over the group.
#include "engine/cuda/attention/attention_cudnn.h"

#include "quaver/error.h"

#if __has_include(<cudnn.h>)

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

#include "engine/cuda/attention/attention_sizes.h"
#include "engine/cuda/attention/cudnn_graph.h"

namespace quaver::cuda {

namespace {

enum Id : std::int64_t {
  query = 1,
  key,
  value,
  result,
  log_sum,
  result_gradient,
  query_gradient,
  key_gradient,
  value_gradient,
  row_dots,           // Σ result · result_gradient of each row
  query_accumulator,  // FP32, for atomics
  scale,
  minus_infinity,
  one
};

Extents transposed(const Extents& x) { return {x[0], x[1], x[3], x[2]}; }

// Extents and strides of all that a graph reads and writes: batch, head, position, element; and what it is stored in.
struct Shapes {
  Shapes(const HeadLayout& l, Format format)
      : type(format == Format::f16 ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16),
        queries{l.batch, l.heads, l.sequence, l.head_size},
        keys{l.batch, l.kv_heads, l.sequence, l.head_size},
        scores{l.batch, l.heads, l.sequence, l.sequence},
        rows{l.batch, l.heads, l.sequence, 1},
        packed_strides{l.sequence * l.width(), l.head_size, l.width(), 1},
        result_strides{l.sequence * l.heads * l.head_size, l.head_size, l.heads * l.head_size, 1},
        row_strides{l.heads * l.sequence, l.sequence, 1, 1},
        scores_transposed_strides{l.heads * l.sequence * l.sequence, l.sequence * l.sequence, 1, l.sequence},
        accumulator_strides{l.heads * l.sequence * l.head_size, l.sequence * l.head_size, l.head_size, 1} {}

  cudnnDataType_t type;
  Extents queries, keys, scores, rows;
  Extents packed_strides, result_strides, row_strides, scores_transposed_strides, accumulator_strides;
};

constexpr cudnnDataType_t f32 = CUDNN_DATA_FLOAT;

void describe_forward(CudnnGraph& g, const Shapes& s) {
  const CudnnNode q = g.tensor(query, s.type, s.queries, s.packed_strides);
  const CudnnNode kt = g.tensor(key, s.type, transposed(s.keys), transposed(s.packed_strides));
  const CudnnNode v = g.tensor(value, s.type, s.keys, s.packed_strides);
  CudnnNode x = g.matmul(q, kt, g.inner(s.scores));
  x = g.pointwise(CUDNN_POINTWISE_MUL, x, g.scalar(scale), g.inner(s.scores));
  x = g.mask_future(x, s.scores, g.scalar(minus_infinity));
  const CudnnNode top = g.reduce(CUDNN_REDUCE_TENSOR_MAX, x, g.inner(s.rows));
  x = g.pointwise(CUDNN_POINTWISE_SUB, x, top, g.inner(s.scores));
  const CudnnNode power = g.pointwise(CUDNN_POINTWISE_EXP, x, g.inner(s.scores));
  const CudnnNode sum = g.reduce(CUDNN_REDUCE_TENSOR_ADD, power, g.inner(s.rows));
  const CudnnNode log = g.pointwise(CUDNN_POINTWISE_LOG, sum, g.inner(s.rows));
  g.pointwise(CUDNN_POINTWISE_ADD, top, log, g.tensor(log_sum, f32, s.rows, s.row_strides));
  const CudnnNode p = g.pointwise(CUDNN_POINTWISE_DIV, power, sum, g.inner(s.scores, s.type));
  g.matmul(p, v, g.tensor(result, s.type, s.queries, s.result_strides));
}

// out = weightsᵀ · x, summed over the heads of a group where there are fewer keys than queries
void key_side_product(CudnnGraph& g, const Shapes& s, CudnnNode weights, CudnnNode x, CudnnNode out) {
  const CudnnNode transposed_weights =
      g.reshape(weights, g.inner(transposed(s.scores), s.scores_transposed_strides, s.type));
  if (s.queries[1] == s.keys[1]) {
    g.matmul(transposed_weights, x, out);
    return;
  }
  g.reduce(CUDNN_REDUCE_TENSOR_ADD, g.matmul(transposed_weights, x, g.inner(s.queries, s.type)), out);
}

void describe_backward(CudnnGraph& g, const Shapes& s, Determinism determinism) {
  const CudnnNode q = g.tensor(query, s.type, s.queries, s.packed_strides);
  const CudnnNode kt = g.tensor(key, s.type, transposed(s.keys), transposed(s.packed_strides));
  const CudnnNode vt = g.tensor(value, s.type, transposed(s.keys), transposed(s.packed_strides));
  const CudnnNode y = g.tensor(result, s.type, s.queries, s.result_strides);
  const CudnnNode dy = g.tensor(result_gradient, s.type, s.queries, s.result_strides);
  const CudnnNode dq = g.tensor(query_gradient, s.type, s.queries, s.packed_strides);
  const CudnnNode dk = g.tensor(key_gradient, s.type, s.keys, s.packed_strides);
  const CudnnNode dv = g.tensor(value_gradient, s.type, s.keys, s.packed_strides);
  const CudnnNode stats = g.tensor(log_sum, f32, s.rows, s.row_strides);
  const CudnnNode dots = g.tensor(row_dots, f32, s.rows, s.row_strides);
  const CudnnNode factor = g.scalar(scale);

  CudnnNode x = g.pointwise(CUDNN_POINTWISE_MUL, dy, y, g.inner(s.queries));
  x = g.reduce(CUDNN_REDUCE_TENSOR_ADD, x, g.inner(s.rows));
  g.pointwise(CUDNN_POINTWISE_MUL, x, g.scalar(one), dots);

  x = g.matmul(q, kt, g.inner(s.scores));
  x = g.pointwise(CUDNN_POINTWISE_MUL, x, factor, g.inner(s.scores));
  x = g.pointwise(CUDNN_POINTWISE_SUB, x, stats, g.inner(s.scores));
  x = g.mask_future(x, s.scores, g.scalar(minus_infinity));
  const CudnnNode p = g.pointwise(CUDNN_POINTWISE_EXP, x, g.inner(s.scores));
  key_side_product(g, s, p, dy, dv);

  x = g.matmul(dy, vt, g.inner(s.scores));
  x = g.pointwise(CUDNN_POINTWISE_SUB, x, dots, g.inner(s.scores));
  x = g.pointwise(CUDNN_POINTWISE_MUL, x, p, g.inner(s.scores));
  const CudnnNode ds = g.pointwise(CUDNN_POINTWISE_MUL, x, factor, g.inner(s.scores));
  key_side_product(g, s, ds, q, dk);

  const CudnnNode k = g.reshape(kt, g.inner(s.keys, s.packed_strides, s.type));
  if (determinism == Determinism::required) {  // without an accumulator there is nothing that atomics could add to
    g.matmul(ds, k, dq);
    return;
  }
  const CudnnNode sum = g.tensor(query_accumulator, f32, s.queries, s.accumulator_strides);
  g.matmul(ds, k, sum);
  g.pointwise(CUDNN_POINTWISE_IDENTITY, sum, dq);
}

// Blackwell's own engine orders its sums when asked to; the heuristics only name Ampere's for such a graph.
CudnnEngineChoice ordered_engine(int architecture) {
  if (architecture != 100 && architecture != 103) return {};
  return {5, {{CUDNN_KNOB_TYPE_KERNEL_CFG, 31}, {CUDNN_KNOB_TYPE_STAGES, 2}}};
}

// Where queries, keys and values begin in [queries | keys | values], from a given sequence on.
struct Packed {
  Packed(const HeadLayout& layout, View matrix, Size sequence)
      : queries(matrix.row_data(sequence * layout.sequence)),
        keys(queries + layout.heads * layout.head_size * 2),
        values(keys + layout.kv_heads * layout.head_size * 2) {}
  std::byte* queries;
  std::byte* keys;
  std::byte* values;
};

std::string without_plan(const HeadLayout& layout, const std::string& why) {
  return "attention over " + std::to_string(layout.batch) + " × " + std::to_string(layout.sequence) + " positions, " +
         std::to_string(layout.heads) + " heads of " + std::to_string(layout.head_size) + " (" +
         std::to_string(layout.kv_heads) + " of keys): " + why;
}

}  // namespace

struct CudnnAttention::State {
  struct Entry {
    std::unique_ptr<CudnnGraph> graph;  // null where there is an obstacle
    std::string obstacle;
  };
  using Key = std::tuple<Pass, Format, Size, Size, Size, Size, Size>;

  State(Gpu& owner, Determinism wanted) : gpu(owner), determinism(wanted) {
    library.check(library.create(&handle), "starting");
    library.check(library.set_stream(handle, gpu.stream()), "choosing the stream");
  }
  ~State() {
    plans.clear();
    library.destroy(handle);
  }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Entry& plan(Pass pass, const HeadLayout& layout, Format format);
  Entry make(Pass pass, const HeadLayout& layout, Format format);
  Size chunk(Pass pass, const HeadLayout& layout) const;

  Gpu& gpu;
  Determinism determinism;
  CudnnLibrary library;
  cudnnHandle_t handle = nullptr;
  std::map<Key, Entry> plans;
};

CudnnAttention::State::Entry CudnnAttention::State::make(Pass pass, const HeadLayout& layout, Format format) {
  if (layout.head_size % 8 != 0 || layout.head_size > largest_cudnn_head) {
    return {nullptr, without_plan(layout, "cuDNN wants heads of a multiple of 8, up to 256")};
  }
  const bool ordered = pass == Pass::backward && determinism == Determinism::required;
  if (ordered && scores_of_sequence(layout) > most_scores) {
    return {nullptr, without_plan(layout, "cuDNN's reproducible backward pass would need too much workspace")};
  }
  try {
    auto graph = std::make_unique<CudnnGraph>(library, handle);
    if (pass == Pass::forward) {
      describe_forward(*graph, Shapes(layout, format));
    } else {
      describe_backward(*graph, Shapes(layout, format), determinism);
    }
    graph->build(ordered ? ordered_engine(gpu.architecture()) : CudnnEngineChoice{});
    return {std::move(graph), ""};
  } catch (const Error& error) {
    return {nullptr, without_plan(layout, error.what())};
  }
}

CudnnAttention::State::Entry& CudnnAttention::State::plan(Pass pass, const HeadLayout& layout, Format format) {
  const Key key{pass, format, layout.batch, layout.sequence, layout.heads, layout.kv_heads, layout.head_size};
  if (const auto known = plans.find(key); known != plans.end()) return known->second;
  return plans.emplace(key, make(pass, layout, format)).first->second;
}

// How many sequences one run of a plan processes; all chunks but the last are equal.
Size CudnnAttention::State::chunk(Pass pass, const HeadLayout& layout) const {
  if (pass == Pass::forward || determinism != Determinism::required) return layout.batch;
  return attention_chunk(layout);
}

CudnnAttention::CudnnAttention(Gpu& gpu, Determinism determinism) : state_(std::make_unique<State>(gpu, determinism)) {}
CudnnAttention::~CudnnAttention() = default;

bool CudnnAttention::deterministic() const { return state_->determinism == Determinism::required; }
std::string CudnnAttention::version() const { return state_->library.version(); }

const std::string& CudnnAttention::obstacle(Pass pass, const HeadLayout& layout, Format format) {
  HeadLayout part = layout;
  part.batch = state_->chunk(pass, layout);
  const std::string& whole = state_->plan(pass, part, format).obstacle;
  const Size rest = layout.batch % part.batch;
  if (!whole.empty() || rest == 0) return whole;
  part.batch = rest;
  return state_->plan(pass, part, format).obstacle;
}

void CudnnAttention::forward(const Attention& op) {
  const CudnnGraph& graph = *state_->plan(Pass::forward, op.layout, op.qkv.format).graph;
  const Packed packed(op.layout, op.qkv, 0);
  float factor = op.scale;
  float least = -std::numeric_limits<float>::infinity();
  graph.run({query, key, value, result, log_sum, scale, minus_infinity},
            {packed.queries, packed.keys, packed.values, op.result.data, op.log_sum.data, &factor, &least},
            state_->gpu.workspace(Slot::large, graph.workspace_bytes()));
}

void CudnnAttention::backward(const AttentionBackward& op) {
  float factor = op.scale;
  float least = -std::numeric_limits<float>::infinity();
  float unit = 1;
  HeadLayout part = op.layout;
  const Size chunk = state_->chunk(Pass::backward, op.layout);
  for (Size first = 0; first < op.layout.batch; first += chunk) {
    part.batch = std::min(chunk, op.layout.batch - first);
    const CudnnGraph& graph = *state_->plan(Pass::backward, part, op.qkv.format).graph;
    const Size rows = row_dots_bytes(part);
    const Size sums = deterministic() ? 0 : rows * part.head_size;
    std::byte* dots =
        state_->gpu.workspace(Slot::large, static_cast<std::size_t>(rows + sums) + graph.workspace_bytes());
    std::byte* accumulator = dots + rows;
    std::byte* workspace = accumulator + sums;

    const Size row = first * part.sequence;
    const Packed packed(part, op.qkv, first);
    const Packed gradient(part, op.qkv_gradient, first);
    std::vector<std::int64_t> ids{
        query,          key,      value, result,         log_sum, result_gradient, query_gradient, key_gradient,
        value_gradient, row_dots, scale, minus_infinity, one};
    std::vector<void*> addresses{packed.queries,
                                 packed.keys,
                                 packed.values,
                                 op.result.row_data(row),
                                 op.log_sum.row_data(first * part.heads),
                                 op.result_gradient.row_data(row),
                                 gradient.queries,
                                 gradient.keys,
                                 gradient.values,
                                 dots,
                                 &factor,
                                 &least,
                                 &unit};
    if (!deterministic()) {
      ids.push_back(query_accumulator);
      addresses.push_back(accumulator);
    }
    graph.run(ids, addresses, workspace);
  }
}

}  // namespace quaver::cuda

#else  // built without cuDNN headers

namespace quaver::cuda {

struct CudnnAttention::State {};

CudnnAttention::CudnnAttention(Gpu& gpu, Determinism determinism) {
  static_cast<void>(gpu);
  static_cast<void>(determinism);
  throw Error("this build has no support for cuDNN", "build where cudnn.h is among CUDA's headers");
}
CudnnAttention::~CudnnAttention() = default;

const std::string& CudnnAttention::obstacle(Pass pass, const HeadLayout& layout, Format format) {
  static_cast<void>(pass);
  static_cast<void>(layout);
  static_cast<void>(format);
  static const std::string none;
  return none;
}
void CudnnAttention::forward(const Attention& op) { static_cast<void>(op); }
void CudnnAttention::backward(const AttentionBackward& op) { static_cast<void>(op); }
bool CudnnAttention::deterministic() const { return true; }
std::string CudnnAttention::version() const { return ""; }

}  // namespace quaver::cuda

#endif
