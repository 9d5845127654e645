#include "formats/quant_spec.h"

#include <algorithm>

#include "quaver/error.h"

namespace quaver {
namespace {

constexpr Block known_blocks[] = {block::tensor, block::row,   block::b1x128, block::b128x128,
                                  block::b1x32,  block::b1x16, block::b16x16};

// What a plain f32 scale does not say.
std::string scale_suffix(ScaleFormat scale) {
  switch (scale) {
    case ScaleFormat::f32:
      return "";
    case ScaleFormat::f32_power_of_two:
      return "/pow2";
    case ScaleFormat::e8m0:
      return "/e8m0";
    case ScaleFormat::e8m0_floor:
      return "/e8m0-floor";
    case ScaleFormat::e4m3:
      return "/e4m3";
  }
  return "";
}

// Shortest text that reads as the decimal it was written as, for factors like 0.75.
std::string short_number(float x) {
  std::string text = std::to_string(x);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text;
}

void check_high_precision(const QuantSpec& spec, const std::string& prefix) {
  const std::string name(info(spec.format).name);
  if (spec.block != block::tensor || spec.scale != ScaleFormat::f32 || spec.policy != ScalePolicy::none ||
      spec.margin != 0 || spec.shrink != 1.0F) {
    throw Error(
        prefix + name + " has the range to do without scales, but blocks, a policy, a margin or a shrink is set",
        "drop them, or use e4m3, e5m2 or e2m1");
  }
  if (spec.rotation != Rotation::none) {
    throw Error(prefix + "rotation does nothing for " + name, "rotate e4m3, e5m2 or e2m1 tensors only");
  }
}

void check_block_scale(const QuantSpec& spec, const std::string& prefix) {
  const bool fixed_extent = spec.block.cols > 0;
  const bool e8m0 = spec.scale == ScaleFormat::e8m0 || spec.scale == ScaleFormat::e8m0_floor;
  if (spec.block != block::tensor && spec.policy != ScalePolicy::current) {
    throw Error(prefix + "the scales of " + name_of(spec.block) + " blocks cannot be " + name_of(spec.policy),
                "set the policy to current, or use one scale for the tensor");
  }
  if ((e8m0 || spec.scale == ScaleFormat::e4m3) && !fixed_extent) {
    throw Error(prefix + "scales in eight bits need blocks of 16, 32 or 128 columns, not " + name_of(spec.block),
                "use f32 scales for a tensor or a row, or choose a block");
  }
  if (spec.scale == ScaleFormat::e4m3 && spec.format != Format::e2m1) {
    throw Error(prefix + "e4m3 scales are defined for e2m1, not for " + std::string(info(spec.format).name),
                "use e2m1, or f32 or e8m0 scales");
  }
  if ((e8m0 || spec.scale == ScaleFormat::e4m3) && spec.margin != 0) {
    throw Error(prefix + "a margin applies to f32 scales only", "set the margin to 0");
  }
}

}  // namespace

void check(const QuantSpec& spec, const std::string& where) {
  const std::string prefix = where.empty() ? "" : where + ": ";
  if (!is_low_precision(spec.format)) return check_high_precision(spec, prefix);
  if (std::find(std::begin(known_blocks), std::end(known_blocks), spec.block) == std::end(known_blocks)) {
    throw Error(prefix + "no such block: " + name_of(spec.block),
                "use tensor, row, 1x128, 128x128, 1x32, 1x16 or 16x16");
  }
  check_block_scale(spec, prefix);
  if (spec.policy == ScalePolicy::none && (spec.margin != 0 || spec.scale != ScaleFormat::f32)) {
    throw Error(prefix + "an unscaled tensor has neither a margin nor a scale format", "set a policy, or drop them");
  }
  if (spec.rotation != Rotation::none && spec.block.rows > 1) {
    throw Error(prefix + "rotation along the columns breaks " + name_of(spec.block) +
                    " blocks, whose codes are shared by rows and columns",
                "use blocks of one row, or no rotation");
  }
  if (!(spec.shrink > 0.0F && spec.shrink <= 1.0F)) {
    throw Error(prefix + "shrink is " + short_number(spec.shrink), "choose it above 0 and at most 1");
  }
  if (spec.margin < 0 || spec.margin > 16) {
    throw Error(prefix + "margin is " + std::to_string(spec.margin), "choose it from 0 to 16");
  }
}

std::string name_of(const Block& b) {
  if (b == block::tensor) return "tensor";
  if (b == block::row) return "row";
  std::string text = std::to_string(b.rows);
  text += 'x';
  text += std::to_string(b.cols);
  return text;
}

std::string name_of(ScalePolicy policy) {
  switch (policy) {
    case ScalePolicy::none:
      return "unscaled";
    case ScalePolicy::current:
      return "current";
    case ScalePolicy::delayed:
      return "delayed";
    case ScalePolicy::fixed:
      return "fixed";
  }
  return "";
}

std::string describe(const QuantSpec& spec) {
  std::string text(info(spec.format).name);
  if (is_low_precision(spec.format)) {
    text.append(" ").append(name_of(spec.block)).append(scale_suffix(spec.scale));
    text.append(" ").append(name_of(spec.policy));
  }
  if (spec.rounding == Rounding::stochastic) text += " stochastic";
  if (spec.rotation == Rotation::hadamard) text += " hadamard";
  if (spec.shrink != 1.0F) text.append(" shrink ").append(short_number(spec.shrink));
  if (spec.margin != 0) text.append(" margin ").append(std::to_string(spec.margin));
  return text;
}

}  // namespace quaver
