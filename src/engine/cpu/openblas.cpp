#include "engine/cpu/openblas.h"

#include <algorithm>
#include <array>
#include <cblas.h>

namespace quaver {

namespace {

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

VectorUnit unit_of(std::string_view core) {
  if (is_one_of(core, std::array<std::string_view, 3>{"SkylakeX", "Cooperlake", "SapphireRapids"})) {
    return VectorUnit::avx512;
  }
  return is_one_of(core, std::array<std::string_view, 2>{"Haswell", "Zen"}) ? VectorUnit::avx2 : VectorUnit::older;
}

}  // namespace

VectorUnit vector_unit() {
#ifdef __x86_64__
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (avx2) return avx512 ? VectorUnit::avx512 : VectorUnit::avx2;
#endif
  return VectorUnit::older;
}

std::string openblas_core() { return openblas_get_corename(); }

std::string openblas_core_to_ask_for(std::string_view chosen, VectorUnit unit) {
  if (unit <= unit_of(chosen)) return "";
  return unit == VectorUnit::avx512 ? "SkylakeX" : "Haswell";
}

}  // namespace quaver
