// `bench attention`: the attention of one layer by itself, forward and backward, in a loop.
#include <algorithm>
#include <chrono>
#include <fmt/format.h>

#include "cli/bench_step.h"
#include "cli/verbs.h"
#include "study/bench_matrices.h"
#include "train/engine_choice.h"
#include "train/run_folder.h"

namespace quaver {

namespace {

constexpr int rounds = 5;

// Seconds of one call: the median of some rounds, with the fastest and the slowest.
struct Seconds {
  double median = 0;
  double least = 0;
  double most = 0;
};

template <class Call>
Seconds time_of(Engine& engine, Size repeats, Call call) {
  using Clock = std::chrono::steady_clock;
  call();
  std::vector<double> seconds;
  for (int round = 0; round < rounds; ++round) {
    engine.device().synchronize();
    const auto start = Clock::now();
    for (Size i = 0; i < repeats; ++i) call();
    engine.device().synchronize();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - start).count() / static_cast<double>(repeats));
  }
  std::ranges::sort(seconds);
  return {seconds[rounds / 2], seconds.front(), seconds.back()};
}

}  // namespace

int bench_attention_verb(const AttentionBenchArguments& arguments) {
  const Config config = benchmark_config(arguments.config);
  const ModelConfig model = resolved(config.model);
  const auto engine = make_engine(config, [](const std::string& text) { fmt::print(stderr, "{}\n", text); });
  const Format high_precision = engine->high_precision();
  const HeadLayout layout{config.train.batch, config.train.context, model.heads, model.kv_heads, model.head_size};
  const auto scale = static_cast<float>(model.attention_scale);
  const Size out = layout.heads * layout.head_size;

  BenchMatrices matrices(*engine);
  const View qkv = matrices.normal(layout.tokens(), layout.width(), high_precision, 1);
  const View result_gradient = matrices.normal(layout.tokens(), out, high_precision, 2);
  const View result = matrices.make(layout.tokens(), out, high_precision);
  const View log_sum = matrices.make(layout.batch * layout.heads, layout.sequence, Format::f32);
  const View qkv_gradient = matrices.make(layout.tokens(), layout.width(), high_precision);
  const Seconds forward = time_of(*engine, arguments.repeats, [&] {
    engine->run(Attention{.layout = layout, .qkv = qkv, .scale = scale, .result = result, .log_sum = log_sum});
  });
  const Seconds backward = time_of(*engine, arguments.repeats, [&] {
    engine->run(AttentionBackward{.layout = layout,
                                  .qkv = qkv,
                                  .result = result,
                                  .log_sum = log_sum,
                                  .result_gradient = result_gradient,
                                  .scale = scale,
                                  .qkv_gradient = qkv_gradient});
  });

  // Two GEMMs forward and five backward, half of each behind the mask.
  const double product =
      static_cast<double>(layout.tokens() * layout.heads) * static_cast<double>(layout.sequence * layout.head_size);
  fmt::print("{} · {} × {} positions, {} heads of {} ({} of keys) · {} · {}\n", model_name(config), layout.batch,
             layout.sequence, layout.heads, layout.head_size, layout.kv_heads, info(high_precision).name,
             engine->name());
  fmt::print("{:<10}{:>10}  {:<20}{:>9}\n", "", "ms", "(fastest – slowest)", "TFLOP/s");
  const auto tell = [](const char* name, const Seconds& seconds, double flops) {
    fmt::print("{:<10}{:>10.3f}  {:<20}{:>9.2f}\n", name, seconds.median * 1e3,
               fmt::format("({:.3f} – {:.3f})", seconds.least * 1e3, seconds.most * 1e3),
               flops / seconds.median / 1e12);
  };
  tell("forward", forward, 2 * product);
  tell("backward", backward, 5 * product);
  return 0;
}

}  // namespace quaver
