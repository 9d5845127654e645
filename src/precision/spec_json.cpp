#include "precision/spec_json.h"

#include "precision/json_names.h"

namespace quaver {

using nlohmann::json;

namespace {

constexpr Names<ScaleFormat, 6> scale_formats{{{ScaleFormat::f32, "f32"},
                                               {ScaleFormat::f32_power_of_two, "f32-power-of-two"},
                                               {ScaleFormat::e8m0, "e8m0"},
                                               {ScaleFormat::e8m0_floor, "e8m0-floor"},
                                               {ScaleFormat::e4m3, "e4m3"},
                                               {ScaleFormat::e4m3_4over6, "e4m3-4over6"}}};
constexpr Names<ScalePolicy, 4> policies{{{ScalePolicy::none, "none"},
                                          {ScalePolicy::current, "current"},
                                          {ScalePolicy::delayed, "delayed"},
                                          {ScalePolicy::fixed, "fixed"}}};
constexpr Names<Rounding, 2> roundings{{{Rounding::nearest_even, "nearest"}, {Rounding::stochastic, "stochastic"}}};
constexpr Names<Rotation, 2> rotations{{{Rotation::none, "none"}, {Rotation::hadamard, "hadamard"}}};

json side_to_json(const QuantSpec& spec) {
  return {{"format", info(spec.format).name},
          {"block", {spec.block.rows, spec.block.cols}},
          {"scale", name_in(scale_formats, spec.scale)},
          {"policy", name_in(policies, spec.policy)},
          {"rounding", name_in(roundings, spec.rounding)},
          {"rotation", name_in(rotations, spec.rotation)},
          {"shrink", spec.shrink},
          {"margin", spec.margin}};
}

QuantSpec side_from_json(const json& value) {
  QuantSpec spec;
  spec.format = parse_format(value.at("format").get<std::string>());
  spec.block = {integer_in<int>(value.at("block").at(0)), integer_in<int>(value.at("block").at(1))};
  spec.scale = value_in(scale_formats, value.at("scale").get<std::string>());
  spec.policy = value_in(policies, value.at("policy").get<std::string>());
  spec.rounding = value_in(roundings, value.at("rounding").get<std::string>());
  spec.rotation = value_in(rotations, value.at("rotation").get<std::string>());
  spec.shrink = value.at("shrink").get<float>();
  spec.margin = integer_in<int>(value.at("margin"));
  check(spec, "scale file");
  return spec;
}

}  // namespace

json spec_to_json(const SiteSpec& spec) {
  return {{"rows", side_to_json(spec.rows)}, {"columns", side_to_json(spec.columns)}};
}

SiteSpec spec_from_json(const json& value) {
  return {side_from_json(value.at("rows")), side_from_json(value.at("columns"))};
}

}  // namespace quaver
