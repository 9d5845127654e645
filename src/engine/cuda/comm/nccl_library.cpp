#include "engine/cuda/comm/nccl_library.h"

#include <dlfcn.h>

#include "quaver/error.h"

namespace quaver::cuda {

namespace {

template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  if (function != nullptr) return;
  throw quaver::Error(std::string("libnccl.so.2 has no ") + name, "install NCCL 2.18 or newer");
}

}  // namespace

NcclLibrary::NcclLibrary() {
  void* library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);  // stays loaded: functions point into it
  if (library == nullptr) {
    throw quaver::Error(std::string("GPUs are connected by NCCL, which cannot be loaded: ") + dlerror(),
                        "install NCCL (libnccl2, or pip's nvidia-nccl-cu13) and put its folder into LD_LIBRARY_PATH");
  }
  find(library, "ncclGetUniqueId", get_unique_id);
  find(library, "ncclCommInitRank", init_rank);
  find(library, "ncclCommDestroy", destroy);
  find(library, "ncclGroupStart", group_start);
  find(library, "ncclGroupEnd", group_end);
  find(library, "ncclSend", send);
  find(library, "ncclRecv", receive);
  find(library, "ncclAllGather", all_gather);
  find(library, "ncclGetErrorString", error_text);
  find(library, "ncclGetLastError", last_error);
}

void NcclLibrary::check(int status, const char* what) const {
  if (status == 0) return;
  std::string text = std::string("NCCL: ") + what + ": " + error_text(status);
  if (const char* detail = last_error(nullptr); detail != nullptr && *detail != 0)
    text += std::string(" (") + detail + ")";
  throw quaver::Error(text, "NCCL_DEBUG=INFO makes NCCL tell more");
}

}  // namespace quaver::cuda
