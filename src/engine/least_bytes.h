// The bytes that an operation has to move at least: each operand read once, each result written once, whatever an
// engine reads again or stages. What it takes from memory beyond that is the engine's.
#pragma once

#include "engine/operations.h"

namespace quaver {

Size least_bytes(const CodeMatrix& matrix);  // of its codes and scales

Size least_bytes(const FillZero& op);
Size least_bytes(const Quantize& op);
Size least_bytes(const Dequantize& op);
Size least_bytes(const TransposeCodes& op);
Size least_bytes(const SumColumns& op);
Size least_bytes(const Gemm& op);
Size least_bytes(const Embed& op);
Size least_bytes(const EmbedBackward& op);  // as if no token came twice
Size least_bytes(const AddNorm& op);
Size least_bytes(const AddNormBackward& op);
Size least_bytes(const NormAdd& op);
Size least_bytes(const NormAddBackward& op);
Size least_bytes(const Combine& op);
Size least_bytes(const PrepareHeads& op);
Size least_bytes(const PrepareHeadsBackward& op);
Size least_bytes(const Attention& op);
Size least_bytes(const AttentionBackward& op);
Size least_bytes(const StoreKeyValues& op);
Size least_bytes(const AttentionDecode& op);  // one key and value per sequence: how many there are is on the device
Size least_bytes(const Activation& op);
Size least_bytes(const ActivationBackward& op);
Size least_bytes(const CrossEntropy& op);  // without the logits, which need not leave the processor
Size least_bytes(const SumInOrder& op);
Size least_bytes(const MeasureGradients& op);
Size least_bytes(const ClipGradients& op);
Size least_bytes(const AdamW& op);
Size least_bytes(const Orthogonalize& op);
Size least_bytes(const Muon& op);  // without its products, which need not leave the processor
Size least_bytes(const Patches& op);
Size least_bytes(const PatchesBackward& op);
Size least_bytes(const BatchNorm& op);
Size least_bytes(const BatchNormBackward& op);
Size least_bytes(const AveragePool& op);
Size least_bytes(const AveragePoolBackward& op);
Size least_bytes(const MovingAverage& op);

}  // namespace quaver
