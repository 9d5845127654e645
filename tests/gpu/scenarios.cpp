// Every operation of the engine once, set up to be repeated.
#include "gpu/specs.h"
#include "gpu/workbench.h"

namespace quaver::test {

namespace {

using Run = std::function<void()>;

SiteSpec delayed(Format format) { return both({.format = format, .policy = ScalePolicy::delayed}); }

// Lives as long as what refers to it.
std::shared_ptr<Casting> casting_of(Workbench& bench, Detail detail = Detail::counts) {
  return std::make_shared<Casting>(Casting{.seed = 11, .step = 2, .micro_step = bench.counter(), .detail = detail});
}

Run quantize(Workbench& bench, const SiteSpec& spec, Detail detail) {
  const View x = bench.input(130, 272);
  QuantizedTensor& out = bench.tensor(spec, 130, 272, 16);
  out.column_sums = bench.output(1, 272, Format::f32);
  const auto casting = casting_of(bench, detail);
  return [=, &bench, &out] { bench.engine().run(Quantize{x, out, *casting, 0.9F}); };
}

NormParameters norm_of(Workbench& bench, Size width) {
  return {NormKind::layer, bench.input(1, width, Format::f32, 0.3F, 1), bench.input(1, width, Format::f32)};
}

NormGradients norm_gradients_of(Workbench& bench, Size width) {
  return {bench.output(1, width, Format::f32), bench.output(1, width, Format::f32)};
}

// A norm forward and backward, as a residual branch has it.
Run norms(Workbench& bench, const SiteSpec& x_spec, const SiteSpec& dy_spec) {
  constexpr Size rows = 200;
  constexpr Size width = 272;
  const NormParameters norm = norm_of(bench, width);
  const View residual = bench.input(rows, width);
  const View branch = bench.input(rows, width);
  const View dy = bench.input(rows, width);
  const View next = bench.input(rows, width);
  const View sum = bench.output(rows, width);
  const View stats = bench.output(rows, 2, Format::f32);
  QuantizedTensor& out = bench.tensor(x_spec, rows, width, 16, Copies::rows_only);
  QuantizedTensor again = bench.tensor(x_spec, rows, width, 16, Copies::columns_only);
  QuantizedTensor& branch_gradient = bench.tensor(dy_spec, rows, width, 16);
  branch_gradient.column_sums = bench.output(1, width, Format::f32);
  const NormGradients gradients = norm_gradients_of(bench, width);
  const auto casting = casting_of(bench);
  return [=, &bench, &out, &branch_gradient]() mutable {
    bench.engine().run(AddNorm{.norm = norm,
                               .residual = residual,
                               .branch = branch,
                               .sum = sum,
                               .stats = stats,
                               .out = out,
                               .casting = *casting});
    bench.engine().run(AddNormBackward{.norm = norm,
                                       .sum = sum,
                                       .stats = stats,
                                       .out_gradient = dy,
                                       .next = next,
                                       .gradient = next,
                                       .branch_gradient = &branch_gradient,
                                       .out = &again,
                                       .gradients = gradients,
                                       .casting = *casting});
  };
}

Run norms_behind(Workbench& bench) {
  constexpr Size rows = 130;
  constexpr Size width = 96;
  const NormParameters norm = norm_of(bench, width);
  const View residual = bench.input(rows, width);
  const View branch = bench.input(rows, width);
  const View dy = bench.input(rows, width);
  const View sum = bench.output(rows, width);
  const View stats = bench.output(rows, 2, Format::f32);
  const View gradient = bench.output(rows, width);
  QuantizedTensor& out = bench.tensor(delayed(Format::e4m3), rows, width, 16);
  QuantizedTensor& branch_gradient = bench.tensor(delayed(Format::e5m2), rows, width, 16);
  const NormGradients gradients = norm_gradients_of(bench, width);
  const auto casting = casting_of(bench);
  return [=, &bench, &out, &branch_gradient] {
    bench.engine().run(NormAdd{.norm = norm,
                               .residual = residual,
                               .branch = branch,
                               .sum = sum,
                               .stats = stats,
                               .out = &out,
                               .casting = *casting});
    bench.engine().run(NormAddBackward{.norm = norm,
                                       .branch = branch,
                                       .stats = stats,
                                       .input_gradient = dy,
                                       .gradient = gradient,
                                       .branch_gradient = branch_gradient,
                                       .gradients = gradients,
                                       .casting = *casting});
    bench.engine().run(Combine{.x = gradient, .y = sum, .keep = 0.5F, .add = 2, .out = gradient});
  };
}

Run activations(Workbench& bench, ActivationKind kind, const SiteSpec& x_spec, const SiteSpec& dy_spec) {
  constexpr Size rows = 130;
  constexpr Size width = 272;
  const Size inputs = kind == ActivationKind::swiglu ? 2 * width : width;
  const View x = bench.input(rows, inputs);
  const View dy = bench.input(rows, width);
  QuantizedTensor& out = bench.tensor(x_spec, rows, width, 16);
  QuantizedTensor again = bench.tensor(x_spec, rows, width, 16, Copies::columns_only);
  QuantizedTensor& gradient = bench.tensor(dy_spec, rows, inputs, 16);
  gradient.column_sums = bench.output(1, inputs, Format::f32);
  const auto casting = casting_of(bench);
  return [=, &bench, &out, &gradient]() mutable {
    bench.engine().run(Activation{.kind = kind, .x = x, .limit = 3, .out = out, .casting = *casting});
    bench.engine().run(ActivationBackward{.kind = kind,
                                          .x = x,
                                          .out_gradient = dy,
                                          .limit = 3,
                                          .in_gradient = gradient,
                                          .out = &again,
                                          .casting = *casting});
  };
}

Run embedding(Workbench& bench) {
  const auto tokens = bench.tokens(4 * 37, 50);
  const View table = bench.input(50, 96, Format::f32);
  const View positions = bench.input(37, 96, Format::f32);
  const View out = bench.output(4 * 37, 96);
  const View table_gradient = bench.output(50, 96, Format::f32);
  const View positions_gradient = bench.output(37, 96, Format::f32);
  return [=, &bench] {
    bench.engine().run(FillZero{table_gradient});
    bench.engine().run(Embed{.tokens = tokens, .sequence = 37, .table = table, .positions = positions, .out = out});
    bench.engine().run(EmbedBackward{.tokens = tokens,
                                     .sequence = 37,
                                     .gradient = out,
                                     .table_gradient = table_gradient,
                                     .positions_gradient = positions_gradient});
  };
}

Run heads_and_attention(Workbench& bench) {
  const HeadLayout layout{2, 100, 4, 2, 64};
  const View in = bench.input(layout.tokens(), layout.width());
  const View qkv = bench.output(layout.tokens(), layout.width());
  const View gradient = bench.output(layout.tokens(), layout.width());
  const View result = bench.output(layout.tokens(), 256);
  const View dy = bench.input(layout.tokens(), 256);
  const View log_sum = bench.output(8, 100, Format::f32);
  const PrepareHeads prepare{.layout = layout,
                             .theta = 10000,
                             .query_gain = bench.input(1, 64, Format::f32),
                             .key_gain = bench.input(1, 64, Format::f32),
                             .in = in,
                             .out = qkv};
  const View query_gain = bench.output(1, 64, Format::f32);
  const View key_gain = bench.output(1, 64, Format::f32);
  float* max_logit = bench.figure(-1e30F);
  return [=, &bench] {
    bench.engine().run(prepare);
    bench.engine().run(Attention{layout, qkv, 0.125F, result, log_sum, max_logit});
    bench.engine().run(AttentionBackward{layout, qkv, result, log_sum, dy, 0.125F, gradient});
    bench.engine().run(PrepareHeadsBackward{
        .forward = prepare, .gradient = gradient, .query_gain_gradient = query_gain, .key_gain_gradient = key_gain});
  };
}

// Replayed with other contents, the sequence has another length.
Run decoding(Workbench& bench) {
  constexpr Size capacity = 400;
  const HeadLayout layout{1, 1, 4, 2, 64};
  const View qkv = bench.input(1, layout.width());
  const KeyValues cache{bench.input(2 * capacity, 64), bench.input(2 * capacity, 64), capacity};
  const CachedSequences at{bench.tokens(1, 1), bench.tokens(1, capacity)};
  const View result = bench.output(1, 256);
  return [=, &bench] {
    bench.engine().run(StoreKeyValues{layout, qkv, cache, at});
    bench.engine().run(AttentionDecode{layout, qkv, cache, at, 0.125F, result});
  };
}

// The three GEMMs of a layer and its head with the loss, for what a recipe stores.
Run products(Workbench& bench, const Recipe& recipe) {
  constexpr Size tokens = 96;
  constexpr Size in = 128;
  constexpr Size out = 160;
  const View x = bench.input(tokens, in);
  const View w = bench.input(out, in, Format::f32, 0.1F);
  const View dy = bench.input(tokens, out);
  QuantizedTensor& tx = bench.tensor(recipe.x, tokens, in, 16);
  QuantizedTensor& tw = bench.tensor(recipe.w, out, in, 64);
  QuantizedTensor& tdy = bench.tensor(recipe.dy, tokens, out, 16);
  Site& logits = bench.tensor(recipe.dy, 1, 1, 64).site();
  const View y = bench.output(tokens, out);
  const View dx = bench.output(tokens, in);
  const View dw = bench.output(out, in, Format::f32);
  const View bias = bench.input(1, out, Format::f32);
  const auto targets = bench.tokens(tokens, out);
  double* loss = bench.figure(0.0);
  auto* correct = bench.figure(std::uint64_t{0});
  float* scale = bench.figure(2.0F);
  const View head_dx = bench.output(tokens, in);
  const auto casting = casting_of(bench);
  return [=, &bench, &tx, &tw, &tdy, &logits] {
    Engine& engine = bench.engine();
    engine.run(Quantize{x, tx, *casting});
    engine.run(Quantize{w, tw, *casting});
    engine.run(Quantize{dy, tdy, *casting});
    engine.run(Gemm{.a = tx.rows(), .b = tw.rows(), .out = y, .bias = bias});
    engine.run(Gemm{.a = tdy.rows(), .b = tw.columns(), .out = dx});
    engine.run(Gemm{.a = tdy.columns(), .b = tx.columns(), .out = dw, .accumulate = true});
    engine.run(CrossEntropy{.x = tx,
                            .w = tw,
                            .logits_gradient = &logits,
                            .targets = targets,
                            .gradient_scale = scale,
                            .z_loss = 0.01F,
                            .loss_sum = loss,
                            .correct = correct,
                            .x_gradient = head_dx,
                            .weight_gradient = dw,
                            .casting = *casting});
  };
}

Run optimizer(Workbench& bench, const QuantSpec& moments, Format weight_format) {
  constexpr Size rows = 70;
  constexpr Size cols = 300;
  const View weight = bench.input(rows, cols, weight_format);
  const View gradient = bench.input(rows, cols, Format::f32);
  QuantizedTensor& m = bench.tensor(both(moments), rows, cols, 0, Copies::rows_only);
  QuantizedTensor& v = bench.tensor(both(moments), rows, cols, 0, Copies::rows_only);
  const View zeros = bench.output(rows, cols, Format::f32);
  const View sum = bench.output(1, cols, Format::f32);
  QuantizedTensor& quantized = bench.tensor(delayed(Format::e4m3), rows, cols, 64);
  float* factors = bench.figure(0.0F);
  double* squares = bench.figure(0.0);
  auto* summary = bench.figure(GradientSummary{});
  auto* measures = bench.figure(GradientMeasure{});
  auto* statistics = bench.figure(UpdateStatistics{});
  const auto casting = casting_of(bench);
  const auto gradients = std::make_shared<std::vector<View>>(1, gradient);
  const auto ratios = std::make_shared<std::vector<float>>(1, 1.0F);
  const auto places = std::make_shared<std::vector<Size>>(1, 0);
  return [=, &bench, &m, &v, &quantized] {
    Engine& engine = bench.engine();
    engine.run(Quantize{zeros, m, *casting});
    engine.run(Quantize{zeros, v, *casting});
    engine.run(SumInOrder{.parts = gradient, .sum = sum, .accumulate = true});
    engine.run(MeasureGradients{*gradients, *ratios, measures});
    engine.run(ClipGradients{measures, *places, 1, Clip::global_norm, 1, factors, squares, summary});
    engine.run(AdamW{.weight = weight,
                     .gradient = gradient,
                     .moment1 = m.rows_matrix(),
                     .moment2_root = v.rows_matrix(),
                     .gradient_factor = factors,
                     .summary = summary,
                     .learning_rate = 0.01F,
                     .beta1 = 0.9F,
                     .beta2 = 0.95F,
                     .epsilon = 1e-8F,
                     .decay = 1e-3F,
                     .bias_correction1 = 0.1F,
                     .bias_correction2 = 0.05F,
                     .rounding = weight_format == Format::f32 ? Rounding::nearest_even : Rounding::stochastic,
                     .random = {7, 1, 3},
                     .statistics = statistics,
                     .quantized = &quantized,
                     .casting = casting.get()});
  };
}

Run muon(Workbench& bench, const QuantSpec& momentum, Format weight_format) {
  constexpr Size rows = 72;
  constexpr Size cols = 304;
  const View weight = bench.input(rows, cols, weight_format);
  const View gradient = bench.input(rows, cols, Format::f32);
  QuantizedTensor& m = bench.tensor(both(momentum), rows, cols, 0, Copies::rows_only);
  const View zeros = bench.output(rows, cols, Format::f32);
  QuantizedTensor& quantized = bench.tensor(delayed(Format::e4m3), rows, cols, 64);
  float* factor = bench.figure(1.0F);
  auto* summary = bench.figure(GradientSummary{});
  auto* statistics = bench.figure(UpdateStatistics{});
  const auto casting = casting_of(bench);
  const auto projections = std::make_shared<std::vector<Size>>(std::vector<Size>{40, 16, 16});
  return [=, &bench, &m, &quantized] {
    Engine& engine = bench.engine();
    engine.run(Quantize{zeros, m, *casting});
    engine.run(Muon{.weight = weight,
                    .gradient = gradient,
                    .projections = *projections,
                    .momentum = m.rows_matrix(),
                    .gradient_factor = factor,
                    .summary = summary,
                    .learning_rate = 0.01F,
                    .beta = 0.95F,
                    .steps = 5,
                    .decay = 1e-3F,
                    .rounding = weight_format == Format::f32 ? Rounding::nearest_even : Rounding::stochastic,
                    .random = {7, 1, 3},
                    .statistics = statistics,
                    .quantized = &quantized,
                    .casting = casting.get()});
  };
}

// A convolution's patches and a batch norm behind it, forward and backward, and the mean over pixels.
Run feature_maps(Workbench& bench, const SiteSpec& x_spec, const SiteSpec& dy_spec) {
  const PatchWindow window{.batch = 3, .height = 10, .width = 9, .channels = 16, .kernel = 3, .stride = 1};
  const Size rows = window.pixels();
  const Size channels = window.channels;
  const View x = bench.input(rows, channels);
  QuantizedTensor& patches = bench.tensor(x_spec, rows, window.taps(), 16);
  QuantizedTensor& pooled = bench.tensor(x_spec, window.batch, channels, 16);
  QuantizedTensor& gradient = bench.tensor(dy_spec, rows, channels, 16);
  const View patches_gradient = bench.input(rows, window.taps());
  const View gain = bench.input(1, channels, Format::f32, 0.3F, 1);
  const View shift = bench.input(1, channels, Format::f32);
  const ChannelMoments sums{bench.output(1, channels, Format::f32), bench.output(1, channels, Format::f32)};
  const View gain_gradient = bench.output(1, channels, Format::f32);
  const View shift_gradient = bench.output(1, channels, Format::f32);
  const View stats = bench.output(2, channels, Format::f32);
  const View normed = bench.output(rows, channels);
  const View dy = bench.input(rows, channels);
  const View pooled_gradient = bench.input(window.batch, channels);
  GradientSummary* summary = bench.figure(GradientSummary{});
  const auto casting = casting_of(bench);
  return [=, &bench, &patches, &pooled, &gradient] {
    Engine& engine = bench.engine();
    engine.run(Patches{window, x, patches, *casting});
    engine.run(BatchNorm{.x = x,
                         .gain = gain,
                         .shift = shift,
                         .sums = sums,
                         .residual = dy,
                         .rectifier = Rectifier::relu,
                         .stats = stats,
                         .out = normed});
    engine.run(AveragePool{.x = normed, .out = pooled, .casting = *casting});
    engine.run(AveragePoolBackward{.out_gradient = pooled_gradient, .gradient = dy});
    engine.run(BatchNormBackward{.x = x,
                                 .gain = gain,
                                 .stats = stats,
                                 .out = normed,
                                 .out_gradient = dy,
                                 .residual_gradient = dy,
                                 .in_gradient = gradient,
                                 .gain_gradient = gain_gradient,
                                 .shift_gradient = shift_gradient,
                                 .casting = *casting});
    engine.run(PatchesBackward{.window = window, .patches_gradient = patches_gradient, .next = dy, .gradient = dy});
    engine.run(MovingAverage{.average = shift, .sum = sums.mean, .summary = summary});
  };
}

}  // namespace

std::vector<Scenario> scenarios() {
  std::vector<Scenario> all;
  for (const NamedSpec& named : some_of(every_spec())) {
    for (const Detail detail : {Detail::counts, Detail::full}) {
      all.push_back({"quantize " + named.name + (detail == Detail::full ? ", full statistics" : ""),
                     [=](Workbench& bench) { return quantize(bench, named.spec, detail); }});
    }
  }
  for (const NamedRecipe& named : some_of(every_recipe())) {
    const Recipe& recipe = named.recipe;
    all.push_back({"products " + named.name, [=](Workbench& bench) { return products(bench, recipe); }});
    all.push_back({"norms " + named.name, [=](Workbench& bench) { return norms(bench, recipe.x, recipe.dy); }});
    all.push_back(
        {"feature maps " + named.name, [=](Workbench& bench) { return feature_maps(bench, recipe.x, recipe.dy); }});
    all.push_back({"gelu " + named.name,
                   [=](Workbench& bench) { return activations(bench, ActivationKind::gelu, recipe.x, recipe.dy); }});
  }
  all.push_back({"relu", [](Workbench& bench) {
                   return activations(bench, ActivationKind::relu, delayed(Format::e4m3), delayed(Format::e5m2));
                 }});
  all.push_back({"swiglu", [](Workbench& bench) {
                   return activations(bench, ActivationKind::swiglu, delayed(Format::e4m3), delayed(Format::e5m2));
                 }});
  all.push_back({"norms behind branches", norms_behind});
  all.push_back({"embedding", embedding});
  all.push_back({"heads and attention", heads_and_attention});
  all.push_back({"decoding", decoding});
  const QuantSpec bf16{.format = Format::bf16, .rounding = Rounding::stochastic};
  const QuantSpec fp8{
      .format = Format::e4m3, .block = block::b1x128, .policy = ScalePolicy::current, .rounding = Rounding::stochastic};
  all.push_back({"adamw f32", [](Workbench& bench) { return optimizer(bench, {}, Format::f32); }});
  all.push_back({"adamw bf16", [=](Workbench& bench) { return optimizer(bench, bf16, Format::bf16); }});
  all.push_back({"adamw fp8", [=](Workbench& bench) { return optimizer(bench, fp8, Format::bf16); }});
  all.push_back({"muon f32", [](Workbench& bench) { return muon(bench, {}, Format::f32); }});
  all.push_back({"muon fp8", [=](Workbench& bench) { return muon(bench, fp8, Format::bf16); }});
  return all;
}

}  // namespace quaver::test
