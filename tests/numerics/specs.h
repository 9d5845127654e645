// How the sites of these tests are stored.
#pragma once

#include "formats/quant_spec.h"

namespace quaver::test {

inline constexpr QuantSpec delayed_e4m3{.format = Format::e4m3, .policy = ScalePolicy::delayed};
inline constexpr QuantSpec delayed_e5m2{.format = Format::e5m2, .policy = ScalePolicy::delayed};
inline constexpr QuantSpec nvfp4_rows{
    .format = Format::e2m1, .block = block::b1x16, .scale = ScaleFormat::e4m3, .policy = ScalePolicy::current};

}  // namespace quaver::test
