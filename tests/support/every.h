// Sanitizers make tests ten times as slow. Where a test goes through very many cases that run the same code, it takes
// some of them there and all of them in the other build.
#pragma once

namespace quaver::test {

#ifdef QUAVER_SANITIZED
inline constexpr int every_nth = 5;
#else
inline constexpr int every_nth = 1;
#endif

}  // namespace quaver::test
