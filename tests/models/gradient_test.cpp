// Gradients of whole models against finite differences, for both families and every parametrization.
#include <cmath>
#include <gtest/gtest.h>

#include "support/model_fixture.h"

namespace quaver::test {
namespace {

ModelConfig small(Family family, Parametrization parametrization) {
  ModelConfig config;
  config.family = family;
  config.parametrization = parametrization;
  config.layers = 2;
  config.width = 32;
  config.heads = 4;
  config.kv_heads = family == Family::llama ? 2 : 0;
  config.ffn = 48;
  config.vocab = 40;
  config.context = 16;
  config.qk_norm = family == Family::llama;
  config.qkv_bias = family == Family::llama;
  config.init_std = 0.15;
  return config;
}

struct Case {
  const char* name;
  ModelConfig config;
  double tolerance = 0.01;
  float z_loss = 0;
};

void PrintTo(const Case& instance, std::ostream* out) { *out << instance.name; }

// B begins as zeros, and then A has no gradient.
void fill_adapters(SmallModel& model) {
  for (Parameter& parameter : model.transformer->parameters().all()) {
    if (!parameter.adapter || parameter.init_std > 0) continue;
    random_normals({23, 0, stream_of(parameter.name.c_str())}, 0, parameter.weight.f32(), parameter.count());
    for (Size i = 0; i < parameter.count(); ++i) parameter.weight.f32()[i] *= 0.2F;
  }
  model.refresh_weights();
}

class Gradients : public testing::TestWithParam<Case> {};

// Along a random direction of one parameter, the loss must change as its gradient says.
TEST_P(Gradients, AgreeWithFiniteDifferences) {
  PrecisionConfig precision;
  precision.recipe = "fp32";
  SmallModel model(GetParam().config, precision, 3, 9);
  model.z_loss = GetParam().z_loss;
  fill_adapters(model);
  model.loss(Pass::train);
  for (Parameter& parameter : model.transformer->parameters().all()) {
    const auto count = static_cast<std::size_t>(parameter.count());
    std::vector<float> direction(count);
    random_normals({17, 0, stream_of(parameter.name.c_str())}, 0, direction.data(), parameter.count());
    float* weight = parameter.weight.f32();
    const float* gradient = parameter.gradient.f32();
    double predicted = 0;
    double scale = 0;
    for (std::size_t i = 0; i < count; ++i) {
      // Half random, half along the gradient, so that the derivative is not lost in rounding.
      direction[i] = direction[i] * 0.3F + gradient[i] / parameter.gradient_ratio * 100.0F;
      predicted += static_cast<double>(gradient[i]) / parameter.gradient_ratio * direction[i];
      scale += static_cast<double>(direction[i]) * direction[i];
    }
    const std::vector<float> before(weight, weight + count);
    const double typical = parameter.init_std > 0 ? parameter.init_std : 1.0;
    const double step = 0.02 * typical * std::sqrt(static_cast<double>(count) / scale);
    const auto loss_at = [&](double distance) {
      for (std::size_t i = 0; i < count; ++i) weight[i] = before[i] + static_cast<float>(distance * direction[i]);
      model.refresh_weights();
      return model.loss(Pass::evaluate);
    };
    const auto slope = [&](double distance) { return (loss_at(distance) - loss_at(-distance)) / (2 * distance); };
    const double measured = (4 * slope(step / 2) - slope(step)) / 3;  // Richardson: the third derivative cancels
    loss_at(0);
    EXPECT_NEAR(measured, predicted, GetParam().tolerance * std::abs(predicted) + 3e-6 / step) << parameter.name;
  }
}

Case make_case(const char* name, Family family, Parametrization parametrization) {
  return {name, small(family, parametrization), 0.01};
}

Case clipped_case() {
  Case clipped = make_case("GptClippedActivations", Family::gpt, Parametrization::standard);
  clipped.config.activation_clip = 1.5;
  clipped.config.activation_scale = 2;
  clipped.tolerance = 0.06;  // finite differences straddle the corners of the clipped function
  return clipped;
}

Case relu_case() {
  Case relu = make_case("GptRelu", Family::gpt, Parametrization::standard);
  relu.config.activation = MlpActivation::relu;
  relu.tolerance = 0.06;  // as above
  return relu;
}

Case z_loss_case() {
  Case with_z = make_case("GptZLoss", Family::gpt, Parametrization::standard);
  with_z.z_loss = 0.05F;
  return with_z;
}

// The context is longer than the original one, so that frequencies of all three kinds are there.
Case scaled_rotary_case() {
  Case scaled = make_case("LlamaScaledRotary", Family::llama, Parametrization::standard);
  scaled.config.rope_theta = 100;
  scaled.config.rope_factor = 8;
  scaled.config.rope_original_context = 32;
  return scaled;
}

Case lora_case(const char* name, Family family, const char* targets) {
  Case adapted = make_case(name, family, Parametrization::standard);
  adapted.config.lora_rank = 3;
  adapted.config.lora_alpha = 5;
  adapted.config.lora_targets = targets;
  return adapted;
}

INSTANTIATE_TEST_SUITE_P(Models, Gradients,
                         testing::Values(make_case("Gpt", Family::gpt, Parametrization::standard),
                                         make_case("GptUmup", Family::gpt, Parametrization::umup),
                                         make_case("GptMunit", Family::gpt, Parametrization::munit),
                                         make_case("Llama", Family::llama, Parametrization::standard),
                                         make_case("LlamaUmup", Family::llama, Parametrization::umup),
                                         make_case("LlamaMunit", Family::llama, Parametrization::munit), clipped_case(),
                                         relu_case(), z_loss_case(), scaled_rotary_case(),
                                         lora_case("GptLora", Family::gpt, "*"),
                                         lora_case("LlamaLora", Family::llama, "*.qkv, blocks.1.mlp.*")),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace quaver::test
