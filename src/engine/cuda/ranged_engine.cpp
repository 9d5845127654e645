#include "engine/cuda/ranged_engine.h"

#include <nvtx3/nvToolsExt.h>

#include "engine/operation_names.h"

namespace quaver::cuda {

RangedEngine::Range::Range(OperationKind kind) { nvtxRangePushA(name_of(kind).data()); }

RangedEngine::Range::~Range() { nvtxRangePop(); }

}  // namespace quaver::cuda
