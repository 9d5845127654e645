#include "formats/quant_spec.h"

#include <algorithm>
#include <tuple>

#include "quaver/error.h"

namespace quaver {
namespace {

constexpr Block known_blocks[] = {block::tensor, block::row,   block::b1x128, block::b128x128,
                                  block::b1x32,  block::b1x16, block::b16x16};

void check_high_precision(const QuantSpec& spec, const std::string& prefix) {
  const std::string name(info(spec.format).name);
  if (spec.block != block::tensor || spec.scale != ScaleFormat::f32 || spec.policy != ScalePolicy::none ||
      spec.margin != 0 || spec.shrink != 1.0F) {
    throw Error(
        prefix + name + " has the range to do without scales, but blocks, a policy, a margin or a shrink is set",
        "drop them, or use a format of 8 bits or fewer");
  }
  if (spec.rotation != Rotation::none) {
    throw Error(prefix + "rotation does nothing for " + name, "rotate formats of 8 bits or fewer only");
  }
}

void check_block_scale(const QuantSpec& spec, const std::string& prefix) {
  const bool fixed_extent = spec.block.cols > 0;
  const bool e8m0 = spec.scale == ScaleFormat::e8m0 || spec.scale == ScaleFormat::e8m0_floor;
  if (spec.block != block::tensor && spec.policy != ScalePolicy::current) {
    throw Error(prefix + "the scales of " + name_of(spec.block) + " blocks cannot be " + name_of(spec.policy),
                "set the policy to current, or use one scale for the tensor");
  }
  const bool e4m3 = is_e4m3(spec.scale);
  if ((e8m0 || e4m3) && !fixed_extent) {
    throw Error(prefix + "scales in eight bits need blocks of 16, 32 or 128 columns, not " + name_of(spec.block),
                "use f32 scales for a tensor or a row, or choose a block");
  }
  if (e4m3 && spec.format != Format::e2m1) {
    throw Error(prefix + "e4m3 scales are defined for e2m1, not for " + std::string(info(spec.format).name),
                "use e2m1, or f32 or e8m0 scales");
  }
  if (spec.scale == ScaleFormat::e4m3_4over6 && spec.block != block::b1x16 && spec.block != block::b16x16) {
    throw Error(prefix + "e4m3-4over6 scales are defined for blocks of 16 columns, not for " + name_of(spec.block),
                "use 1x16 or 16x16 blocks, or e4m3 scales");
  }
  if ((e8m0 || e4m3) && spec.margin != 0) {
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
    throw Error(prefix + "shrink is " + std::to_string(spec.shrink), "choose it above 0 and at most 1");
  }
  if (spec.margin < 0 || spec.margin > 16) {
    throw Error(prefix + "margin is " + std::to_string(spec.margin), "choose it from 0 to 16");
  }
}

void check(const SiteSpec& spec, const std::string& where) {
  check(spec.rows, where);
  check(spec.columns, where);
  if (!has_given_scale(spec.columns)) return;
  const auto shared = [](const QuantSpec& side) {
    return std::tuple(side.format, side.scale, side.policy, side.margin);
  };
  if (shared(spec.rows) == shared(spec.columns)) return;
  throw Error(where + ": rows and columns share one " + name_of(spec.columns.policy) +
                  " scale, which follows the rows, but are " + describe(spec.rows) + " and " + describe(spec.columns),
              "give both the same format, scale, policy and margin, or the columns a scale of their own");
}

}  // namespace quaver
