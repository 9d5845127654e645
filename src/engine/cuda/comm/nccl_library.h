// NCCL, loaded when ranks on GPUs are to be connected: the few of its functions that carry bytes. Declared here, so
// that building needs none of its headers.
#pragma once

#include <cstddef>
#include <cuda_runtime.h>
#include <string>

namespace quaver::cuda {

extern "C" {
struct NcclId {
  char bytes[128];
};
using NcclComm = struct NcclCommOpaque*;
}

struct NcclLibrary {
  static constexpr int bytes_type = 1;  // of data: unsigned 8-bit integers

  // Throws Error naming the library and the remedy.
  NcclLibrary();

  int (*get_unique_id)(NcclId*) = nullptr;
  int (*init_rank)(NcclComm*, int size, NcclId id, int rank) = nullptr;
  int (*destroy)(NcclComm) = nullptr;
  int (*group_start)() = nullptr;
  int (*group_end)() = nullptr;
  int (*send)(const void*, std::size_t, int type, int peer, NcclComm, cudaStream_t) = nullptr;
  int (*receive)(void*, std::size_t, int type, int peer, NcclComm, cudaStream_t) = nullptr;
  int (*all_gather)(const void*, void*, std::size_t, int type, NcclComm, cudaStream_t) = nullptr;
  const char* (*error_text)(int) = nullptr;
  const char* (*last_error)(NcclComm) = nullptr;

  // Throws Error with NCCL's own words.
  void check(int status, const char* what) const;
};

}  // namespace quaver::cuda
