// Norms with the residual stream's additions, forward and backward, into every kind of site.
#include "gpu/compare.h"
#include "gpu/specs.h"

namespace quaver::test {
namespace {

const Casting casting{.seed = 21, .step = 4};
constexpr float known_scale = 32;

SiteSpec high_precision_spec(const Pair& pair) { return both({.format = pair.gpu->high_precision()}); }
SiteSpec delayed(Format format) { return both({.format = format, .policy = ScalePolicy::delayed}); }

// What every norm operation reads, on both engines.
struct NormInputs {
  NormInputs(Pair& pair, const Shape& shape, NormKind kind_, bool has_shift_)
      : kind(kind_),
        has_shift(has_shift_),
        gain(pair, normal_matrix(1, shape.cols, 1, 0.3F, 1), Kept::f32),
        shift(pair, normal_matrix(1, shape.cols, 2, 0.2F), Kept::f32),
        x(pair, normal_matrix(shape.rows, shape.cols, 3, 1, 0.25F)),
        branch(pair, normal_matrix(shape.rows, shape.cols, 4, 0.5F)),
        stats(pair, shape.rows, 2, 0, Kept::f32),
        sum(pair, shape.rows, shape.cols, 0) {}

  NormParameters norm(On on) { return {kind, gain.on(on), has_shift ? shift.on(on) : View{}, 1e-5F}; }

  NormKind kind;
  bool has_shift;
  Twin gain;
  Twin shift;
  Twin x;
  Twin branch;
  Twin stats;
  Twin sum;
};

struct NormGradientTwins {
  NormGradientTwins(Pair& pair, Size cols)
      : gain(pair, 1, cols, 0.5F, Kept::f32), shift(pair, 1, cols, -0.25F, Kept::f32) {}
  NormGradients on(On engine) { return {gain.on(engine), shift.on(engine), 1.5F}; }
  // A sum over tokens of numbers near 1 cancels down to about the root of their count.
  void compare(const std::string& what, double limit, Size tokens) const {
    const double floor = std::sqrt(static_cast<double>(tokens));
    expect_near(what + ", gain's gradient", gain, limit, floor);
    expect_near(what + ", shift's gradient", shift, limit, floor);
  }
  Twin gain;
  Twin shift;
};

struct Kind {
  const char* name;
  NormKind kind;
  bool has_shift;
};
constexpr Kind kinds[] = {
    {"layer", NormKind::layer, true}, {"rms", NormKind::rms, false}, {"rms+shift", NormKind::rms, true}};

// Large shapes are tried with fewer combinations.
std::vector<Kind> kinds_for(const Shape& shape) {
  if (is_small(shape)) return {std::begin(kinds), std::end(kinds)};
  return {shape.cols % 3 == 0 ? kinds[1] : kinds[0]};
}

enum class Branching : std::uint8_t { none, apart, in_place };

struct Factors {
  float keep;
  float add;
};
constexpr Factors odd_factors{0.8F, 1.25F};
constexpr Factors plain_factors{1, 1};  // those of nearly all models

class NormTest : public HighPrecisionTest {
 protected:
  std::vector<NamedSpec> producer_specs() const {
    return {{"high precision", high_precision_spec(pair())},
            {"delayed e4m3", delayed(Format::e4m3)},
            {"delayed e5m2", delayed(Format::e5m2)}};
  }

  struct AddNormCase {
    Branching branching;
    Copies copies = Copies::both;
    Factors factors = odd_factors;
  };

  void add_norm(const std::string& what, const Shape& shape, const Kind& kind, const NamedSpec& named,
                const AddNormCase& options) {
    const auto& [branching, copies, factors] = options;
    NormInputs in(pair(), shape, kind.kind, kind.has_shift);
    TwinTensor out(pair(), named.spec, shape.rows, shape.cols, copies, {known_scale});
    const bool has_branch = branching != Branching::none;
    Twin& sum = branching == Branching::in_place ? in.x : in.sum;
    pair().run([&](On on) {
      return AddNorm{.norm = in.norm(on),
                     .residual = in.x.on(on),
                     .branch = has_branch ? in.branch.on(on) : View{},
                     .keep = factors.keep,
                     .add = factors.add,
                     .sum = sum.on(on),
                     .stats = in.stats.on(on),
                     .out = out.on(on),
                     .casting = casting};
    });
    expect_near(what + ", sum", sum, high_precision_bound(pair()));
    expect_near(what + ", stats", in.stats, high_precision_bound(pair()));
    expect_close(what, pair(), out);
    expect_statistics(what, pair(), out, Detail::counts, Statistics::close);
  }

  void add_norm_backward(const std::string& what, const Shape& shape, const Kind& kind, const SiteSpec* branch_spec,
                         bool has_next, Factors factors = odd_factors) {
    NormInputs in(pair(), shape, kind.kind, kind.has_shift);
    set_stats(in);
    Twin dy(pair(), normal_matrix(shape.rows, shape.cols, 7));
    Twin next(pair(), normal_matrix(shape.rows, shape.cols, 8));
    Twin gradient(pair(), shape.rows, shape.cols, 0);
    const SiteSpec spec = branch_spec != nullptr ? *branch_spec : both({});
    TwinTensor branch(pair(), spec, shape.rows, shape.cols, Copies::both, {known_scale});
    Twin& sums = branch.sum_columns(0.5F);
    NormGradientTwins gradients(pair(), shape.cols);
    // In place where there is something behind it, as the model does.
    pair().run([&](On on) {
      return AddNormBackward{.norm = in.norm(on),
                             .sum = in.x.on(on),
                             .stats = in.stats.on(on),
                             .out_gradient = dy.on(on),
                             .next = has_next ? next.on(on) : View{},
                             .keep = factors.keep,
                             .add = factors.add,
                             .gradient = has_next ? next.on(on) : gradient.on(on),
                             .branch_gradient = branch_spec != nullptr ? &branch.on(on) : nullptr,
                             .gradients = gradients.on(on),
                             .casting = casting};
    });
    const double limit = high_precision_bound(pair());
    expect_near(what + ", gradient", has_next ? next : gradient, limit, 0.1);
    gradients.compare(what, limit, shape.rows);
    if (branch_spec == nullptr) return;
    expect_close(what + ", branch gradient", pair(), branch);
    expect_statistics(what, pair(), branch, Detail::counts, Statistics::close);
    expect_near(what + ", column sums", sums, limit, std::sqrt(static_cast<double>(shape.rows)));
  }

  // Mean and 1/std of x, the same on both engines.
  void set_stats(NormInputs& in) {
    const Matrix x = in.x.from_cpu();
    Matrix stats(x.rows, 2);
    for (Size r = 0; r < x.rows; ++r) {
      double mean = 0;
      double square = 0;
      for (Size c = 0; c < x.cols; ++c) mean += static_cast<double>(x(r, c)) / static_cast<double>(x.cols);
      if (in.kind == NormKind::rms) mean = 0;
      for (Size c = 0; c < x.cols; ++c) square += std::pow(static_cast<double>(x(r, c)) - mean, 2);
      stats(r, 0) = static_cast<float>(mean);
      stats(r, 1) = static_cast<float>(1 / std::sqrt(square / static_cast<double>(x.cols) + 1e-5));
    }
    in.stats.set(stats);
  }
};

std::string label(const char* op, const Kind& kind, const std::string& spec, const Shape& shape) {
  return std::string(op) + " " + kind.name + " into " + spec + ", " + text_of(shape);
}

TEST_P(NormTest, AddNorm) {
  for (const Shape& shape : all_shapes()) {
    for (const Kind& kind : kinds_for(shape)) {
      for (const NamedSpec& named : producer_specs()) {
        const std::string what = label("add_norm", kind, named.name, shape);
        add_norm(what, shape, kind, named, {.branching = Branching::in_place});
        if (!is_small(shape)) continue;
        add_norm(what, shape, kind, named, {.branching = Branching::none});
        add_norm(what, shape, kind, named, {.branching = Branching::apart});
        add_norm(what + ", rows only", shape, kind, named,
                 {.branching = Branching::apart, .copies = Copies::rows_only});
      }
    }
  }
}

TEST_P(NormTest, AddNormIntoEverySpec) {
  for (const NamedSpec& named : every_spec_of(Role::x)) {
    for (const Shape& shape : shapes_of({{17, 33}, {64, 896}, {128, 512}})) {
      const std::string what = label("add_norm", kinds[0], named.name, shape);
      add_norm(what, shape, kinds[0], named, {.branching = Branching::apart});
    }
  }
}

TEST_P(NormTest, AddNormBackward) {
  for (const Shape& shape : all_shapes()) {
    for (const Kind& kind : kinds_for(shape)) {
      add_norm_backward(label("add_norm_backward", kind, "nothing", shape), shape, kind, nullptr, true);
      for (const NamedSpec& named : producer_specs()) {
        const std::string what = label("add_norm_backward", kind, named.name, shape);
        add_norm_backward(what, shape, kind, &named.spec, true);
        if (is_small(shape)) add_norm_backward(what + ", at the stream's end", shape, kind, &named.spec, false);
      }
    }
  }
}

TEST_P(NormTest, AddNormBackwardIntoEverySpec) {
  for (const NamedSpec& named : every_spec_of(Role::dy)) {
    for (const Shape& shape : shapes_of({{17, 33}, {64, 896}, {128, 512}})) {
      add_norm_backward(label("add_norm_backward", kinds[0], named.name, shape), shape, kinds[0], &named.spec, true);
    }
  }
}

// More tiles than a GPU has blocks at once, so that a block goes on from one to the next.
TEST_P(NormTest, ManyTilesABlock) {
  const std::vector<Shape> tall =
      is_brief() ? std::vector<Shape>{{300, 264}} : std::vector<Shape>{{20000, 64}, {18001, 264}};
  for (const Shape& shape : tall) {
    for (const NamedSpec& named : producer_specs()) {
      add_norm(label("add_norm", kinds[0], named.name, shape), shape, kinds[0], named,
               {.branching = Branching::apart, .factors = plain_factors});
      add_norm_backward(label("add_norm_backward", kinds[0], named.name, shape), shape, kinds[0], &named.spec, true,
                        plain_factors);
    }
  }
}

// Backward may cast the norm's result once more: the codes must be those of the forward pass, bit for bit.
TEST_P(NormTest, CastAgainInBackwardIsTheForwardsCast) {
  Engine& gpu = *pair().gpu;
  for (const NamedSpec& named : some_of(every_spec_of(Role::x))) {
    for (const SiteSpec& branch_spec :
         {high_precision_spec(pair()), delayed(Format::e5m2), make_recipe("fp8-block", {}).dy}) {
      for (const Shape& shape :
           shapes_of({{3, 5}, {17, 33}, {129, 257}, {64, 896}, {96, 1536}, {256, 512}, {40, 4096}})) {
        const std::string what = "norm cast again into " + named.name + ", " + text_of(shape);
        NormInputs in(pair(), shape, NormKind::layer, true);
        TwinTensor forward(pair(), named.spec, shape.rows, shape.cols, Copies::both, {known_scale});
        TwinTensor again(pair(), named.spec, shape.rows, shape.cols, Copies::columns_only, {known_scale});
        TwinTensor branch(pair(), branch_spec, shape.rows, shape.cols, Copies::both, {known_scale, "branch/dy"});
        Twin dy(pair(), normal_matrix(shape.rows, shape.cols, 7));
        Twin gradient(pair(), shape.rows, shape.cols, 0);
        NormGradientTwins gradients(pair(), shape.cols);
        gpu.run(AddNorm{.norm = in.norm(On::gpu),
                        .residual = in.x.gpu(),
                        .branch = in.branch.gpu(),
                        .sum = in.sum.gpu(),
                        .stats = in.stats.gpu(),
                        .out = forward.gpu(),
                        .casting = casting});
        forward.take_gpu_seen();
        gpu.run(AddNormBackward{.norm = in.norm(On::gpu),
                                .sum = in.sum.gpu(),
                                .stats = in.stats.gpu(),
                                .out_gradient = dy.gpu(),
                                .gradient = gradient.gpu(),
                                .branch_gradient = &branch.gpu(),
                                .out = &again.gpu(),
                                .gradients = gradients.on(On::gpu),
                                .casting = casting});
        expect_same(what, forward.gpu_columns(), again.gpu_columns());
        EXPECT_TRUE(again.margins_are_intact()) << what;
        EXPECT_EQ(again.take_gpu_seen().count, 0U) << what << ": observed a second time";
      }
    }
  }
}

TEST_P(NormTest, NormAdd) {
  for (const Shape& shape : all_shapes()) {
    for (const Kind& kind : kinds_for(shape)) {
      for (const NamedSpec& named : producer_specs()) {
        const std::string what = label("norm_add", kind, named.name, shape);
        NormInputs in(pair(), shape, kind.kind, kind.has_shift);
        TwinTensor out(pair(), named.spec, shape.rows, shape.cols, Copies::both, {known_scale});
        const bool writes = named.name != "delayed e5m2";  // the end of the stack has no site
        pair().run([&](On on) {
          return NormAdd{.norm = in.norm(on),
                         .residual = in.x.on(on),
                         .branch = in.branch.on(on),
                         .keep = 0.8F,
                         .add = 0.6F,
                         .sum = in.sum.on(on),
                         .stats = in.stats.on(on),
                         .out = writes ? &out.on(on) : nullptr,
                         .casting = casting};
        });
        expect_near(what + ", sum", in.sum, high_precision_bound(pair()), 0.1);
        expect_near(what + ", stats", in.stats, high_precision_bound(pair()));
        if (writes) expect_close(what, pair(), out);
      }
    }
  }
}

TEST_P(NormTest, NormAddBackward) {
  for (const Shape& shape : all_shapes()) {
    for (const Kind& kind : kinds_for(shape)) {
      for (const NamedSpec& named : producer_specs()) {
        for (const bool has_next : {true, false}) {
          if (!has_next && !is_small(shape)) continue;
          const std::string what = label("norm_add_backward", kind, named.name, shape);
          NormInputs in(pair(), shape, kind.kind, kind.has_shift);
          set_stats(in);
          Twin dy(pair(), normal_matrix(shape.rows, shape.cols, 7));
          Twin next(pair(), normal_matrix(shape.rows, shape.cols, 8));
          Twin gradient(pair(), shape.rows, shape.cols, 0);
          TwinTensor branch(pair(), named.spec, shape.rows, shape.cols, Copies::both, {known_scale});
          NormGradientTwins gradients(pair(), shape.cols);
          pair().run([&](On on) {
            return NormAddBackward{.norm = in.norm(on),
                                   .branch = in.x.on(on),
                                   .stats = in.stats.on(on),
                                   .input_gradient = dy.on(on),
                                   .next = has_next ? next.on(on) : View{},
                                   .keep = 0.9F,
                                   .add = 0.4F,
                                   .factor = 0.7F,
                                   .gradient = has_next ? next.on(on) : gradient.on(on),
                                   .branch_gradient = branch.on(on),
                                   .gradients = gradients.on(on),
                                   .casting = casting};
          });
          expect_near(what + ", gradient", has_next ? next : gradient, high_precision_bound(pair()));
          gradients.compare(what, high_precision_bound(pair()), shape.rows);
          // The rounding of a gradient in BF16 is multiplied by 1/std, which a row of few elements makes large.
          if (shape.cols > 16) expect_close(what + ", branch gradient", pair(), branch);
        }
      }
    }
  }
}

TEST_P(NormTest, Combine) {
  for (const Shape& shape : all_shapes()) {
    Twin x(pair(), normal_matrix(shape.rows, shape.cols, 1));
    Twin y(pair(), normal_matrix(shape.rows, shape.cols, 2));
    Twin out(pair(), shape.rows, shape.cols, 99);
    pair().run(
        [&](On on) { return Combine{.x = x.on(on), .y = y.on(on), .keep = 0.7F, .add = -1.5F, .out = out.on(on)}; });
    expect_near("combine " + text_of(shape), out, high_precision_bound(pair()));
    pair().run([&](On on) { return Combine{.x = x.on(on), .y = y.on(on), .keep = 2, .add = 0.5F, .out = x.on(on)}; });
    expect_near("combine in place " + text_of(shape), x, high_precision_bound(pair()));
    pair().gpu->run(FillZero{out.gpu()});
    for (const float value : out.from_gpu().values) EXPECT_EQ(value, 0) << "fill_zero " << text_of(shape);
  }
}

QUAVER_HIGH_PRECISION_FORMATS(NormTest);

}  // namespace
}  // namespace quaver::test
