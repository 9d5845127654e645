// How much workspace attention needs on the GPU, and which shapes Hopper's own kernel takes: for the pass itself and
// for the memory plan (cuda_sizing.cpp). Nothing of CUDA is included.
#pragma once

#include "engine/cuda/workspace_sizes.h"

namespace quaver::cuda {

// cuDNN's deterministic backward pass writes the scores of a chunk of sequences to memory: this much at once, and at
// most this much for one sequence.
inline constexpr Size scores_limit = Size{1} << 30;
inline constexpr Size most_scores = Size{2} << 30;
inline constexpr Size largest_cudnn_head = 256;

// One FP32 sum per query and head.
inline Size row_dots_bytes(const HeadLayout& layout) { return round_up_256(4 * layout.tokens() * layout.heads); }

// Bytes of the scores of one sequence, and how many sequences a backward pass of attention processes at once.
inline Size scores_of_sequence(const HeadLayout& layout) {
  const Size padded = (layout.sequence + 63) / 64 * 64;
  return layout.heads * padded * padded * 2;
}
inline Size attention_chunk(const HeadLayout& layout) {
  const Size most = std::clamp<Size>(scores_limit / scores_of_sequence(layout), 1, layout.batch);
  const Size parts = (layout.batch + most - 1) / most;
  return (layout.batch + parts - 1) / parts;
}

// Decoding: a thread block reads a part of the keys and leaves its sums, [head_size + 2] floats, for every part that a
// full cache would have.
inline constexpr Size decode_keys = 128;
inline Size decode_parts(Size capacity) { return ceil_div(capacity, decode_keys); }
inline Size attention_decode_bytes(const HeadLayout& layout, Size capacity) {
  return 4 * layout.batch * layout.heads * decode_parts(capacity) * (layout.head_size + 2);
}

// Our backward pass of attention for Hopper computes tiles of 128 keys by 128 or 64 queries.
inline constexpr Size hopper_multiprocessors = 132;  // 114 on PCIe cards
inline constexpr Size hopper_key_rows = 128;
constexpr Size hopper_query_rows(Size head_size) { return Size{128} * 64 / head_size; }
inline Size hopper_key_tiles(const HeadLayout& layout) { return ceil_div(layout.sequence, hopper_key_rows); }
inline Size hopper_query_tiles(const HeadLayout& layout) {
  return ceil_div(layout.sequence, hopper_query_rows(layout.head_size));
}

// What tensor cores, and so cuDNN's kernels and ours, take attention in.
inline bool is_fast_attention_format(Format format) { return format == Format::bf16 || format == Format::f16; }

inline bool hopper_attention_supports(int architecture, const HeadLayout& layout) {
  return architecture == 90 && (layout.head_size == 64 || layout.head_size == 128);
}
// Than cuDNN, by measurements; of fewer short heads there are none.
inline bool hopper_attention_is_faster(const HeadLayout& layout) {
  const bool many_heads = layout.head_size == 64 && 2 * layout.batch * layout.heads >= hopper_multiprocessors;
  return many_heads || layout.sequence >= 1024;
}

// What a thread block computes at once: a head of a sequence, or a tile of a head's keys. A tile costs the time of
// about one pair of tiles more, heads leave multiprocessors idle that have one less to compute than others: heads of 64
// are cut into tiles where that gains an eighth. The rule takes every GPU for a large one: bits do not depend on its
// size.
enum class AttentionUnit : std::uint8_t { head, key_tile };
inline AttentionUnit hopper_attention_unit(const HeadLayout& layout) {
  const Size heads = layout.batch * layout.heads;
  const Size places = ceil_div(heads, hopper_multiprocessors) * hopper_multiprocessors;
  const Size tiles = hopper_key_tiles(layout);  // a head has tiles² / 2 pairs of them
  const bool by_heads = layout.head_size == 64 && 8 * places * tiles <= 9 * heads * (tiles + 2);
  return by_heads ? AttentionUnit::head : AttentionUnit::key_tile;
}

// Bytes of its workspace: two statistics of each query; sums for the queries of the heads at work; where heads share
// keys, their gradients for each head by itself; where blocks share heads, a counter for each tile of queries. All grow
// as the sequence does, not as its square.
struct HopperAttentionMemory {
  HopperAttentionMemory(const HeadLayout& layout, Size multiprocessors) {
    const bool by_heads = hopper_attention_unit(layout) == AttentionUnit::head;
    const Size heads = layout.batch * layout.heads;
    const Size queries = hopper_query_tiles(layout) * hopper_query_rows(layout.head_size);
    row_statistics = heads * queries * 2 * 4;
    partial = (by_heads ? std::min(heads, multiprocessors) : heads) * queries * layout.head_size * 4;
    groups = layout.heads == layout.kv_heads ? 0 : layout.tokens() * layout.heads * layout.head_size * 2 * 2;
    counters = by_heads ? 0 : round_up_256(4 * (1 + heads * hopper_query_tiles(layout)));
  }
  Size total() const { return row_statistics + partial + groups + counters; }

  Size row_statistics;
  Size partial;
  Size groups;
  Size counters;
};

// What a backward pass keeps. Of cuDNN's plan its own workspace is a guess, the scores; the pass asks the plan itself.
inline Size attention_backward_bytes(const HeadLayout& layout, Format format, int architecture) {
  const bool fast = is_fast_attention_format(format);
  if (fast && hopper_attention_supports(architecture, layout) && hopper_attention_is_faster(layout)) {
    return HopperAttentionMemory(layout, hopper_multiprocessors).total();
  }
  const bool cudnn = fast && layout.head_size % 8 == 0 && layout.head_size <= largest_cudnn_head &&
                     scores_of_sequence(layout) <= most_scores;
  if (!cudnn) return row_dots_bytes(layout);
  HeadLayout part = layout;
  part.batch = attention_chunk(layout);
  return row_dots_bytes(part) + part.batch * scores_of_sequence(part);
}

}  // namespace quaver::cuda
