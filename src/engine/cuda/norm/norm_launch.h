// Choosing and starting the norm kernels: the team that holds a row, and as many blocks as the GPU runs at once.
#pragma once

#include <algorithm>
#include <string>

#include "engine/cuda/runtime/gpu.h"
#include "quaver/error.h"

namespace quaver::cuda {

// Calls body<vectors, warps, even>() with a team that holds a row of this width: many warps with little each, so that
// the sums a thread keeps over the rows leave room for many warps. Rows that do not end with a group of eight elements,
// which no model has that trains in 8 bits, share the widest teams.
template <class Body>
void with_team(Size width, const char* what, Body&& body) {
  if (width > 8192) {
    throw Error(std::string(what) + ": a row of " + std::to_string(width) +
                    " elements is wider than the 8192 that the GPU engine holds",
                "choose a smaller model.width, or train.device = \"cpu\"");
  }
  if (width % 8 != 0) {
    if (width <= 2048) return body.template operator()<1, 8, false>();
    if (width <= 4096) return body.template operator()<2, 8, false>();
    return body.template operator()<4, 8, false>();
  }
  if (width <= 256) return body.template operator()<1, 1, true>();
  if (width <= 512) return body.template operator()<1, 2, true>();
  if (width <= 768) return body.template operator()<1, 3, true>();
  if (width <= 1024) return body.template operator()<1, 4, true>();
  if (width <= 1536) return body.template operator()<1, 6, true>();
  if (width <= 2048) return body.template operator()<1, 8, true>();
  if (width <= 4096) return body.template operator()<2, 8, true>();
  body.template operator()<4, 8, true>();
}

// Slots for rows ahead, beside so many bytes of codes: as many as help, where two blocks still fit side by side; two
// are the fewest.
template <class Rows>
int slots_ahead(const Gpu& gpu, Size codes) {
  if constexpr (Rows::slot_bytes == 0) {
    return 0;
  } else {
    const Size room = gpu.shared_memory() / 2 - 2048 - codes;
    return static_cast<int>(std::clamp<Size>(room / Rows::slot_bytes, 2, Rows::most_ahead + 1));
  }
}

// Blocks that loop over the tiles: as many as run at once, at most one per tile.
template <class Kernel>
unsigned persistent_blocks(Gpu& gpu, Kernel kernel, int threads, std::size_t shared, Size tiles, const char* what) {
  if (shared > 32 * 1024) {  // beyond 48 KiB, static shared memory included, a kernel must opt in
    check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared)), what);
  }
  int per_multiprocessor = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, kernel, threads, shared), what);
  const Size most = static_cast<Size>(std::max(1, per_multiprocessor)) * gpu.multiprocessors();
  return static_cast<unsigned>(std::max<Size>(1, std::min(tiles, most)));
}

struct PersistentLaunch {
  int threads;
  std::size_t shared;
  Size tiles;
  const char* what;
};

template <class Kernel, class Args>
void launch_persistent(Gpu& gpu, Kernel kernel, const PersistentLaunch& launch, const Args& args) {
  const unsigned blocks = persistent_blocks(gpu, kernel, launch.threads, launch.shared, launch.tiles, launch.what);
  kernel<<<blocks, launch.threads, launch.shared, gpu.stream()>>>(args);
  check_launch(launch.what);
}

}  // namespace quaver::cuda
