// Looking tokens up in the embedding table, and adding up the table's gradient. Backward sorts the positions by token,
// so that every row of the table is summed in one fixed order and frequent tokens are spread over many blocks.
#pragma once

#include "engine/cuda/runtime/gpu.h"
#include "engine/engine.h"

namespace quaver::cuda {

void embed(Gpu& gpu, const Embed& op);
void embed_backward(Gpu& gpu, const EmbedBackward& op);

}  // namespace quaver::cuda
