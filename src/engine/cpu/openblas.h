// Which of its kernels OpenBLAS multiplies with on this CPU.
#pragma once

#include <string>
#include <string_view>

namespace quaver {

enum class VectorUnit { older, avx2, avx512 };  // with what OpenBLAS's kernels for it use beside

VectorUnit vector_unit();

// As OpenBLAS names them.
std::string openblas_core();

// The kernels to ask for instead of those that it chose; empty where they use all of the unit. It chooses by the CPU's
// model, and older kernels for a model that it does not know.
std::string openblas_core_to_ask_for(std::string_view chosen, VectorUnit unit);

}  // namespace quaver
