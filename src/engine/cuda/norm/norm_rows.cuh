// The rows of a team: the next rows are prefetched while one is processed.
#pragma once

#include <type_traits>

#include "engine/cuda/norm/norm_device.cuh"

namespace quaver::cuda {

// A team's rows, one after another through the tiles of its block.
template <class Team>
struct RowCursor {
  int row;
  int in_tile;

  __device__ explicit RowCursor(const Team& team)
      : row(static_cast<int>(blockIdx.x) * norm_tile_rows + team.index), in_tile(team.index) {}
  __device__ void step() {
    row += Team::count;
    in_tile += Team::count;
    if (in_tile < norm_tile_rows) return;
    in_tile -= norm_tile_rows;
    row += static_cast<int>(gridDim.x - 1) * norm_tile_rows;
  }
};

// The operands of a team's rows: those of the next rows are copied ahead into a ring of slots in shared memory. Every
// thread reads only what it copied itself, so no barrier is needed.
template <class T, class Team, int kOperands>
class RowsAhead {
  static_assert(Team::vectors == 1);

 public:
  static constexpr int slot_bytes = kOperands * Team::threads * static_cast<int>(sizeof(Packed8<T>));

  __device__ RowsAhead(const Team& team, std::uint8_t* place, int slots)
      : next_(team),
        first_(reinterpret_cast<Packed8<T>*>(place) + threadIdx.x),
        last_(first_ + (slots - 1) * slot_length),
        now_(last_),
        ahead_(slots - 1) {}

  __device__ const Packed8<T>& at(int operand, int) const { return now_[operand * Team::threads]; }

  // load(row, fetch) calls fetch(operand, group, from, valid) for what a row has.
  template <class Load>
  __device__ void begin(const Load& load) {
    for (int i = 0; i < ahead_; ++i) ask_for(load, first_ + i * slot_length);
  }
  // Advances to the team's next row.
  template <class Load>
  __device__ void advance(const Load& load) {
    Packed8<T>* const spent = now_;
    now_ = now_ == last_ ? first_ : now_ + slot_length;
    ask_for(load, spent);
    if (ahead_ == 1) {
      wait_for_copies<1>();
    } else if (ahead_ == 2) {
      wait_for_copies<2>();
    } else {
      wait_for_copies<most_ahead>();
    }
  }

  static constexpr int most_ahead = 3;

 private:
  static constexpr int slot_length = kOperands * Team::threads;

  template <class Load>
  __device__ void ask_for(const Load& load, Packed8<T>* slot) {
    load(next_.row, [&](int operand, int, const T* from, int valid) {
      fetch_packed(from, valid, Team::even, slot[operand * Team::threads]);
    });
    end_copies();
    next_.step();
  }

  RowCursor<Team> next_;
  Packed8<T>* first_;
  Packed8<T>* last_;
  Packed8<T>* now_;
  int ahead_;
};

// The same in registers, one row ahead.
template <class T, class Team, int kOperands>
class RowsInRegisters {
 public:
  static constexpr int slot_bytes = 0;
  static constexpr int most_ahead = 0;

  __device__ RowsInRegisters(const Team& team, std::uint8_t*, int) : cursor_(team) {}

  __device__ const Packed8<T>& at(int operand, int group) const { return now_[operand][group]; }

  template <class Load>
  __device__ void begin(const Load& load) {
    ask_for(load);
  }
  template <class Load>
  __device__ void advance(const Load& load) {
#pragma unroll
    for (int i = 0; i < kOperands; ++i) {
#pragma unroll
      for (int j = 0; j < Team::vectors; ++j) now_[i][j] = next_[i][j];
    }
    ask_for(load);
  }

 private:
  template <class Load>
  __device__ void ask_for(const Load& load) {
    load(cursor_.row, [&](int operand, int group, const T* from, int valid) {
      next_[operand][group] = load_packed(from, valid, Team::even);
    });
    cursor_.step();
  }

  RowCursor<Team> cursor_;
  Packed8<T> now_[kOperands][Team::vectors];
  Packed8<T> next_[kOperands][Team::vectors];
};

// Wider rows' tiles leave no room for two blocks and their slots side by side, which costs more than it gains.
constexpr Size widest_row_ahead = 1024;

template <class T, class Team, int kOperands>
using Rows = std::conditional_t<Team::widest <= widest_row_ahead, RowsAhead<T, Team, kOperands>,
                                RowsInRegisters<T, Team, kOperands>>;

}  // namespace quaver::cuda
