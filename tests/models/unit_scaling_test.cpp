// Unit-scaled models: every tensor that is cast to 8 bits has unit scale at initialisation, forward and backward.
#include <gtest/gtest.h>

#include "support/model_fixture.h"

namespace quaver::test {
namespace {

struct Scheme {
  const char* name;
  Family family;
  Parametrization parametrization;
  MlpActivation activation = MlpActivation::automatic;
};

void PrintTo(const Scheme& instance, std::ostream* out) { *out << instance.name; }

class UnitScaling : public testing::TestWithParam<Scheme> {};

TEST_P(UnitScaling, TensorsHaveUnitStandardDeviation) {
  ModelConfig config;
  config.family = GetParam().family;
  config.parametrization = GetParam().parametrization;
  config.activation = GetParam().activation;
  config.layers = 4;
  config.width = 256;
  config.heads = 4;
  config.vocab = 256;
  config.context = 128;
  PrecisionConfig precision;
  precision.recipe = "fp8-unit";
  SmallModel model(config, precision, 4, 128);
  model.loss(Pass::train, Detail::full);
  model.transformer->book().end_step(0);
  for (const auto& entry : model.transformer->book().entries()) {
    if (entry->site.role == Role::w) continue;
    const double std = entry->last_step.std();
    EXPECT_GE(std, 0.8) << entry->site.name;
    EXPECT_LE(std, 1.25) << entry->site.name;
    EXPECT_LT(entry->last_step.saturated_percent(), 0.01) << entry->site.name;
  }
  for (const Parameter& parameter : model.transformer->parameters().all()) {
    if (parameter.kind == ParameterKind::vector) continue;
    EXPECT_FLOAT_EQ(parameter.init_std, 1.0F) << parameter.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, UnitScaling,
                         testing::Values(Scheme{"GptUmup", Family::gpt, Parametrization::umup},
                                         Scheme{"GptUmupRelu", Family::gpt, Parametrization::umup, MlpActivation::relu},
                                         Scheme{"GptMunit", Family::gpt, Parametrization::munit},
                                         Scheme{"LlamaUmup", Family::llama, Parametrization::umup},
                                         Scheme{"LlamaMunit", Family::llama, Parametrization::munit}),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace quaver::test
