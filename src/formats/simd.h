// Loops marked QUAVER_SIMD are compiled for AVX-512, AVX2 and the baseline, and the best the machine has is chosen when
// the program starts. One source is compiled for all of them, so there is no second copy to keep in agreement.
#pragma once

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(QUAVER_SANITIZED)
#define QUAVER_SIMD __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define QUAVER_SIMD
#endif
