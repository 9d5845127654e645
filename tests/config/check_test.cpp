#include "config/check.h"

#include <cmath>
#include <functional>
#include <gmock/gmock.h>

#include "config/support.h"

namespace quaver {
namespace {

using test::refusal;
using ::testing::AllOf;
using ::testing::HasSubstr;

// The refusal of the default config after one change.
std::string refused_after(const std::function<void(Config&)>& change) {
  Config config;
  config.data.kind = DataKind::synthetic;
  EXPECT_NO_THROW(check(config));
  change(config);
  return refusal([&] { check(config); });
}

void accepted_after(const std::function<void(Config&)>& change) {
  Config config;
  config.data.kind = DataKind::synthetic;
  change(config);
  EXPECT_NO_THROW(check(config));
}

TEST(Check, HeadsDivideTheWidthUnlessTheirSizeIsGiven) {
  EXPECT_THAT(refused_after([](Config& c) { c.model.heads = 3; }),
              AllOf(HasSubstr("model.heads = 3"), HasSubstr("model.width = 256"), HasSubstr("model.head_size")));
  accepted_after([](Config& c) { c.model.heads = 3, c.model.head_size = 64; });
}

TEST(Check, KeyHeadsDivideHeads) {
  EXPECT_THAT(refused_after([](Config& c) { c.model.kv_heads = 3; }), HasSubstr("model.kv_heads = 3"));
  EXPECT_THAT(refused_after([](Config& c) { c.model.kv_heads = 8; }), HasSubstr("model.kv_heads = 8"));
  accepted_after([](Config& c) { c.model.kv_heads = 2; });
}

TEST(Check, RotaryHeadsAreEven) {
  EXPECT_THAT(refused_after([](Config& c) { c.model.family = Family::llama, c.model.head_size = 33; }),
              HasSubstr("33"));
  accepted_after([](Config& c) { c.model.head_size = 33; });
}

TEST(Check, RotaryFrequenciesAreScaledBetweenTwoBounds) {
  EXPECT_THAT(refused_after([](Config& c) { c.model.rope_factor = 8, c.model.rope_low_frequency = 4; }),
              AllOf(HasSubstr("model.rope_low_frequency = 4"), HasSubstr("model.rope_high_frequency = 4")));
  accepted_after([](Config& c) { c.model.rope_low_frequency = 4; });
  accepted_after([](Config& c) { c.model.rope_factor = 8; });
}

TEST(Check, PretrainedWeightsAreNotUnitScaled) {
  EXPECT_THAT(refused_after([](Config& c) { c.model.from = "folder", c.precision.recipe = "fp8-unit"; }),
              HasSubstr("model.from"));
  accepted_after([](Config& c) { c.model.from = "folder"; });
}

TEST(Check, UnitScalingNeedsAnUntiedHeadAndUnitWeights) {
  for (const auto unit_scaled : {Parametrization::umup, Parametrization::munit}) {
    EXPECT_THAT(refused_after([&](Config& c) {
                  c.model.parametrization = unit_scaled;
                  c.model.tie_head = TieHead::yes;
                }),
                AllOf(HasSubstr("model.tie_head"), HasSubstr("embedding"), HasSubstr("scale")));
    EXPECT_THAT(refused_after([&](Config& c) {
                  c.model.parametrization = unit_scaled;
                  c.model.init = Init::depth;
                }),
                HasSubstr("model.init"));
    accepted_after([&](Config& c) {
      c.model.parametrization = unit_scaled;
      c.model.init = Init::unit;
    });
  }
  EXPECT_THAT(refused_after([](Config& c) { c.model.init = Init::unit; }), HasSubstr("model.parametrization"));
  accepted_after([](Config& c) { c.precision.recipe = "fp8-unit", c.model.init = Init::unit; });
  EXPECT_THAT(refused_after([](Config& c) { c.precision.recipe = "fp8-unit", c.model.tie_head = TieHead::yes; }),
              HasSubstr("model.tie_head"));
  accepted_after([](Config& c) {
    c.precision.recipe = "fp8-unit";
    c.model.parametrization = Parametrization::standard;
    c.model.tie_head = TieHead::yes;
  });
}

TEST(Check, SequencesFitTheModel) {
  EXPECT_THAT(refused_after([](Config& c) { c.train.context = 257; }), HasSubstr("model.context = 256"));
  accepted_after([](Config& c) { c.train.context = 256; });
}

TEST(Check, WarmupAndDecayFitTheRun) {
  const auto shares = [](Config& c) { c.optim.warmup = 0.6, c.optim.decay = 0.5; };
  accepted_after(shares);
  EXPECT_THAT(refused_after([&](Config& c) { shares(c), c.optim.schedule = ScheduleShape::wsd; }),
              HasSubstr("optim.decay = 0.5"));
}

TEST(Check, RecipesExistAndStartAndTailAreShares) {
  EXPECT_THAT(refused_after([](Config& c) { c.precision.recipe.clear(); }), HasSubstr("precision.recipe"));
  EXPECT_THAT(refused_after([](Config& c) { c.precision.switch_to = "b16"; }),
              AllOf(HasSubstr("precision.switch_to"), HasSubstr("did you mean \"bf16\"?")));
  EXPECT_THAT(refused_after([](Config& c) { c.precision.layers["head"] = "fp7"; }),
              AllOf(HasSubstr("precision.layers.\"head\""), HasSubstr("fp7")));
  accepted_after([](Config& c) { c.precision.switch_to = "bf16"; });
  EXPECT_THAT(refused_after([](Config& c) { c.precision.wide_tail = -0.5; }), HasSubstr("precision.wide_tail"));
  EXPECT_THAT(refused_after([](Config& c) { c.precision.wide_start = -0.5; }), HasSubstr("precision.wide_start"));
  accepted_after([](Config& c) { c.precision.wide_start = c.precision.wide_tail = 0; });
  accepted_after([](Config& c) { c.precision.layer_speeds["blocks.* in fp8-row"] = 0.5; });
  for (const char* key : {"blocks.*", "blocks.* in", "blocks.* in fp9", "fp8-row"}) {
    EXPECT_THAT(refused_after([&](Config& c) { c.precision.layer_speeds[key] = 0.5; }),
                HasSubstr("precision.layer_speeds"));
  }
  EXPECT_THAT(refused_after([](Config& c) { c.precision.layer_speeds["blocks.* in fp8-row"] = 0; }),
              HasSubstr("precision.layer_speeds"));
}

TEST(Check, TrainingNeedsDataAndInspectionDoesNot) {
  Config config;
  EXPECT_THAT(refusal([&] { check(config); }), AllOf(HasSubstr("data.path"), HasSubstr("data.kind = synthetic")));
  EXPECT_NO_THROW(check(config, Purpose::inspection));
  config.data.path = "somewhere";
  EXPECT_NO_THROW(check(config));
}

TEST(Check, VocabularyHoldsTheSyntheticLanguage) {
  EXPECT_THAT(refused_after([](Config& c) { c.model.vocab = 63; }), HasSubstr("data.synthetic_vocab = 64"));
  accepted_after([](Config& c) { c.model.vocab = 64; });
}

TEST(Check, ConfigsMadeByHandKeepEveryLimit) {
  EXPECT_THAT(refused_after([](Config& c) { c.train.steps = 0; }), HasSubstr("train.steps"));
  EXPECT_THAT(refused_after([](Config& c) { c.model.heads = 0; }), HasSubstr("model.heads"));
  EXPECT_THAT(refused_after([](Config& c) { c.optim.warmup = 1.01; }), HasSubstr("optim.warmup"));
  EXPECT_THAT(refused_after([](Config& c) { c.optim.beta1 = NAN; }), HasSubstr("optim.beta1"));
  EXPECT_THAT(refused_after([](Config& c) { c.optim.weight_decay_of["x"] = -1; }), HasSubstr("optim.weight_decay_of"));
  EXPECT_THAT(refused_after([](Config& c) { c.train.seed = ~std::uint64_t{0}; }), HasSubstr("train.seed"));
  EXPECT_THAT(refused_after([](Config& c) { c.model.init = static_cast<Init>(99); }), HasSubstr("model.init"));
  EXPECT_THAT(refused_after([](Config& c) { c.preset = "unheard-of"; }), HasSubstr("preset"));
}

TEST(Check, LanguageModelsReadNoImages) {
  for (const DataKind images : {DataKind::idx, DataKind::synthetic_images}) {
    EXPECT_THAT(refused_after([&](Config& c) { c.data.kind = images, c.data.path = "mnist"; }),
                AllOf(HasSubstr("data.kind"), HasSubstr("model.family")));
  }
}

TEST(Check, AnMlpClassifiesImages) {
  const auto mlp = [](Config& c) {
    c.model.family = Family::mlp;
    c.data.kind = DataKind::synthetic_images;
    c.model.heads = 3;  // which it has not
  };
  accepted_after(mlp);
  const auto refused = [&](const std::function<void(Config&)>& change) {
    return refused_after([&](Config& c) { mlp(c), change(c); });
  };
  EXPECT_THAT(refused([](Config& c) { c.data.kind = DataKind::synthetic; }), HasSubstr("synthetic-images"));
  EXPECT_THAT(refused([](Config& c) { c.data.kind = DataKind::dataset; }), HasSubstr("data.kind"));
  EXPECT_THAT(refused([](Config& c) { c.data.kind = DataKind::idx; }), HasSubstr("data.path"));
  EXPECT_THAT(refused([](Config& c) { c.data.synthetic_pixels = 9; }), HasSubstr("data.synthetic_pixels = 9"));
  EXPECT_THAT(refused([](Config& c) { c.train.context = 2; }), HasSubstr("train.context = 2"));
  accepted_after([&](Config& c) { mlp(c), c.precision.recipe = "fp8-unit"; });
  EXPECT_THAT(refused([](Config& c) { c.model.parametrization = Parametrization::munit; }), HasSubstr("munit"));
  EXPECT_THAT(refused([](Config& c) { c.model.init = Init::unit; }), HasSubstr("model.init"));
  EXPECT_THAT(refused([](Config& c) { c.model.init = Init::depth; }), HasSubstr("model.init"));
  EXPECT_THAT(refused_after([](Config& c) { c.model.init = Init::he; }), HasSubstr("model.family = mlp"));
}

TEST(Check, AConvnetClassifiesImages) {
  const auto convnet = [](Config& c) {
    c.model.family = Family::convnet;
    c.data.kind = DataKind::cifar;
    c.data.path = "cifar";
  };
  accepted_after(convnet);
  const auto refused = [&](const std::function<void(Config&)>& change) {
    return refused_after([&](Config& c) { convnet(c), change(c); });
  };
  EXPECT_THAT(refused([](Config& c) { c.data.kind = DataKind::dataset; }), HasSubstr("convnet classifies images"));
  EXPECT_THAT(refused([](Config& c) { c.data.path.clear(); }), HasSubstr("data.path"));
  EXPECT_THAT(refused([](Config& c) { c.train.context = 2; }), HasSubstr("train.context = 2"));
  EXPECT_THAT(refused([](Config& c) { c.precision.recipe = "fp8-unit"; }), HasSubstr("unit scaling"));
  EXPECT_THAT(refused([](Config& c) { c.model.init = Init::gpt2; }), HasSubstr("model.init"));
}

}  // namespace
}  // namespace quaver
