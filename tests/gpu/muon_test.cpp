// Newton–Schulz, and Muon with every way to store its weights and momentum.
#include "gpu/compare.h"
#include "gpu/specs.h"

namespace quaver::test {
namespace {

class OrthogonalizeTest : public HighPrecisionTest {};

// Sums in another order round a few elements of an operand to the next BF16 number.
TEST_P(OrthogonalizeTest, AgreesWithTheCpu) {
  for (const Shape& shape :
       shapes_of({{1, 1}, {3, 5}, {17, 33}, {33, 17}, {64, 64}, {129, 257}, {64, 1000}, {1000, 64}, {256, 512}})) {
    for (const Size steps : {1, 5}) {
      Twin x(pair(), normal_matrix(shape.rows, shape.cols, 3, 0.02F), Kept::f32);
      pair().run([&](On on) { return Orthogonalize{x.on(on), steps, 3}; });
      expect_near("orthogonalize " + text_of(shape), x, bound::bf16);
    }
  }
}

TEST_P(OrthogonalizeTest, LeavesZeros) {
  Twin x(pair(), Matrix(40, 24), Kept::f32);
  pair().run([&](On on) { return Orthogonalize{x.on(on), 5}; });
  EXPECT_EQ(x.from_gpu().values, Matrix(40, 24).values);
}

QUAVER_HIGH_PRECISION_FORMATS(OrthogonalizeTest);

struct MuonStorage {
  const char* name;
  Kept weight;
  Rounding rounding;
  QuantSpec momentum;
};

constexpr QuantSpec bf16_momentum{.format = Format::bf16, .rounding = Rounding::stochastic};
constexpr QuantSpec fp8_momentum{
    .format = Format::e4m3, .block = block::b1x128, .policy = ScalePolicy::current, .rounding = Rounding::stochastic};
constexpr MuonStorage muon_storages[] = {{"f32, f32", Kept::f32, Rounding::nearest_even, {}},
                                         {"f32, bf16", Kept::f32, Rounding::nearest_even, bf16_momentum},
                                         {"f32, fp8", Kept::f32, Rounding::nearest_even, fp8_momentum},
                                         {"bf16 stochastic, f32", Kept::bf16, Rounding::stochastic, {}},
                                         {"bf16 stochastic, fp8", Kept::bf16, Rounding::stochastic, fp8_momentum}};

class MuonTest : public HighPrecisionTest {
 protected:
  struct Trained {
    Trained(Pair& pair, const MuonStorage& storage_, std::vector<Size> projections_, Size cols)
        : storage(storage_),
          projections(std::move(projections_)),
          weight(pair, normal_matrix(rows(), cols, 1), storage_.weight),
          gradient(pair, normal_matrix(rows(), cols, 2, 0.1F), Kept::f32),
          momentum(pair, both(storage_.momentum), rows(), cols, Copies::rows_only,
                   {.name = "m", .sharing = Sharing::where_exact}),
          factor(pair, {0.8F}),
          summary(pair, std::vector<GradientSummary>(1)),
          statistics(pair, std::vector<UpdateStatistics>(1)) {
      Twin zeros(pair, rows(), cols, 0, Kept::f32);
      store(pair, zeros, momentum);
    }

    Size rows() const {
      Size sum = 0;
      for (const Size part : projections) sum += part;
      return sum;
    }

    void step(Pair& pair, std::uint32_t t, float value_limit, TwinTensor* quantized, const Casting* casting) {
      pair.run([&](On on) {
        return Muon{.weight = weight.on(on),
                    .gradient = gradient.on(on),
                    .projections = projections,
                    .momentum = momentum.on(on).rows_matrix(),
                    .gradient_factor = factor.on(on),
                    .summary = summary.on(on),
                    .value_limit = value_limit,
                    .learning_rate = 0.01F,
                    .beta = 0.95F,
                    .steps = 5,
                    .decay = 1e-3F,
                    .rounding = storage.rounding,
                    .random = {7, t, stream_of("weight")},
                    .statistics = statistics.on(on),
                    .quantized = quantized != nullptr ? &quantized->on(on) : nullptr,
                    .casting = casting};
      });
    }

    MuonStorage storage;
    std::vector<Size> projections;
    Twin weight;
    Twin gradient;
    TwinTensor momentum;
    Cells<float> factor;
    Cells<GradientSummary> summary;
    Cells<UpdateStatistics> statistics;
  };
};

TEST_P(MuonTest, ThreeStepsOfEveryStorage) {
  struct Layer {
    std::vector<Size> projections;
    Size cols;
  };
  for (const MuonStorage& storage : muon_storages) {
    for (const Layer& layer : {Layer{{17}, 33}, Layer{{64, 32, 32}, 64}, Layer{{129, 129}, 257}, Layer{{64}, 1000}}) {
      for (const float value_limit : {0.0F, 0.05F}) {
        Trained trained(pair(), storage, layer.projections, layer.cols);
        const std::string what = std::string("muon ") + storage.name + ", " + text_of({trained.rows(), layer.cols});
        for (std::uint32_t t = 1; t <= 3; ++t) {
          trained.gradient.set(normal_matrix(trained.rows(), layer.cols, 10 + t, 0.1F));
          trained.step(pair(), t, value_limit, nullptr, nullptr);
        }
        expect_near(what + ", weight", trained.weight, storage.weight == Kept::f32 ? 2e-4 : 2e-3);
        expect_close(what + ", momentum", pair(), trained.momentum);
        const UpdateStatistics want = trained.statistics.from_cpu()[0];
        const UpdateStatistics got = trained.statistics.from_gpu()[0];
        EXPECT_EQ(want.count, got.count) << what;
        expect_near(what + ", Σ w²", want.weight2, got.weight2, 1e-4);
        expect_near(what + ", Σ Δw²", want.update2, got.update2, storage.weight == Kept::f32 ? 1e-2 : 5e-2);
        EXPECT_NEAR(static_cast<double>(want.unmoved), static_cast<double>(got.unmoved),
                    0.01 * static_cast<double>(want.count) + 2)
            << what << ", unmoved";
      }
    }
  }
}

TEST_P(MuonTest, CastsTheNewWeightIntoItsSite) {
  const Casting casting{.seed = 4, .step = 8};
  for (const NamedSpec& named : every_spec_of(Role::w)) {
    const std::string what = "muon into " + named.name;
    Trained trained(pair(), muon_storages[0], {129}, 257);
    TwinTensor quantized(pair(), named.spec, 129, 257, Copies::both, {64});
    TwinTensor apart(pair(), named.spec, 129, 257, Copies::both, {64});
    trained.step(pair(), 1, 0, &quantized, &casting);
    pair().gpu->run(Quantize{trained.weight.gpu(), apart.gpu(), casting});
    expect_same_bytes(what + ", against a cast of the weight", apart.gpu_bytes(), quantized.gpu_bytes());
  }
}

TEST_P(MuonTest, GradientsThatAreNotFiniteMoveNothing) {
  for (const MuonStorage& storage : muon_storages) {
    Trained trained(pair(), storage, {17}, 33);
    trained.summary.set({GradientSummary{.norm = 1, .nonfinite = 2, .skip = 2}});
    const std::vector<std::byte> weight = trained.weight.gpu_bytes();
    const std::vector<std::byte> momentum = trained.momentum.gpu_bytes();
    trained.step(pair(), 1, 0, nullptr, nullptr);
    expect_same_bytes(std::string(storage.name) + ", weight", weight, trained.weight.gpu_bytes());
    expect_same_bytes(std::string(storage.name) + ", momentum", momentum, trained.momentum.gpu_bytes());
  }
}

QUAVER_HIGH_PRECISION_FORMATS(MuonTest);

}  // namespace
}  // namespace quaver::test
