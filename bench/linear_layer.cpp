// The linear layers of GPT 350M inside the CUDA engine: cast of the weight, forward and backward with their casts, as
// the layers of a model run them, but for casts that a model fuses into their producers. Prints one line of JSON per
// recipe and layer; bench/rivals/linear_layer.py compares quaver.Linear with them.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <vector>

#include "engine/cuda_module.h"
#include "engine/sizing_engine.h"
#include "formats/random.h"
#include "nn/linear.h"
#include "quaver/error.h"
#include "train/resolved_config.h"

namespace quaver {
namespace {

constexpr int steps = 3;  // delayed scales are set from the first one on
constexpr int timed = 60;
constexpr std::chrono::milliseconds warm_up(700);  // the GPU's clocks fall under load

// Random values in BF16: a piece of them again and again.
std::shared_ptr<std::byte> random_matrix(Engine& engine, Size count, float deviation, std::uint32_t stream) {
  const Size piece = std::min<Size>(count, 5'000'011);
  std::vector<float> values(static_cast<std::size_t>(piece));
  random_normals({1, 0, stream}, 0, values.data(), piece);
  std::vector<std::byte> codes(values.size() * 2);
  encode_array(Format::bf16, values.data(), deviation, piece, codes.data());
  auto memory = engine.device().allocate(static_cast<std::size_t>(count) * 2);
  for (Size first = 0; first < count; first += piece) {
    engine.device().upload(codes.data(), memory.get() + first * 2,
                           static_cast<std::size_t>(std::min(piece, count - first)) * 2);
  }
  return memory;
}

class TimedLayer {
 public:
  TimedLayer(Engine& engine, const std::string& recipe, const LinearShape& shape, Size tokens)
      : engine_(engine), layer_(registry_, shape), tokens_(tokens) {
    precision_.recipe = recipe;
    registry_.book().apply(make_plan(precision_, registry_.layers()));
    for (const auto& entry : registry_.book().entries()) sites_.push_back(&entry->site);
    registry_.parameters().allocate(engine, Format::f32);
    registry_.parameters().initialize(engine, 1);
    engine.upload_scales(sites_);
    x_memory_ = random_matrix(engine, tokens * shape.in, 1, 1);
    dy_memory_ = random_matrix(engine, tokens * shape.out, 1e-3F, 2);
    x_ = {x_memory_.get(), Format::bf16, tokens, shape.in};
    dy_ = {dy_memory_.get(), Format::bf16, tokens, shape.out};
    const auto sizing = make_sizing_engine(engine.device().hardware(), Format::bf16);
    Arena measuring;
    registry_.parameters().quantize_all(engine, {});
    pass(*sizing, measuring);
    memory_ = engine.device().allocate(measuring.peak());
    arena_ = Arena(memory_.get(), measuring.peak());
  }

  std::vector<double> milliseconds() {
    for (int i = 0; i < steps; ++i) {
      run();
      engine_.wait_for_statistics(sites_);
      registry_.book().end_step(static_cast<std::uint64_t>(i));
      engine_.upload_scales(sites_);
    }
    const auto end_of_warm_up = std::chrono::steady_clock::now() + warm_up;
    while (std::chrono::steady_clock::now() < end_of_warm_up) {
      for (int i = 0; i < 10; ++i) run();
      engine_.device().synchronize();
    }
    std::vector<double> times;
    for (int i = 0; i < timed; ++i) {
      engine_.device().time([&] { run(); }, [&](double seconds) { times.push_back(1000 * seconds); });
    }
    engine_.device().synchronize();
    std::ranges::sort(times);
    return times;
  }

 private:
  void run() {
    registry_.parameters().quantize_all(engine_, {});
    arena_.reset();
    pass(engine_, arena_);
  }

  void pass(Engine& engine, Arena& arena) {
    Step step{engine, arena, 1, tokens_};
    step.memory = Memory::speed;
    step.accumulators = accumulators_for(AccumulatorChoice::automatic, engine_);
    step.begin({});
    layer_.input_from(step, x_, 1);
    layer_.forward(step, step.saved(layer_.shape().out));
    layer_.output_gradient_from(step, dy_, 1);
    layer_.dgrad(step, step.saved(layer_.shape().in));
    layer_.wgrad(step);
  }

  Engine& engine_;
  PrecisionConfig precision_;
  Registry registry_;
  Linear layer_;
  Size tokens_;
  std::vector<Site*> sites_;
  std::shared_ptr<std::byte> x_memory_, dy_memory_, memory_;
  View x_, dy_;
  Arena arena_;
};

void print(const std::string& recipe, const LinearShape& shape, Size tokens, const std::vector<double>& times) {
  std::printf(
      "{\"implementation\": \"engine %s\", \"layer\": \"%s\", \"in\": %ld, \"out\": %ld, \"tokens\": %ld, "
      "\"ms\": %.4f, \"fastest\": %.4f, \"slowest\": %.4f}\n",
      recipe.c_str(), shape.name.c_str(), static_cast<long>(shape.in), static_cast<long>(shape.out),
      static_cast<long>(tokens), times[times.size() / 2], times.front(), times.back());
  std::fflush(stdout);
}

int run(Size tokens, const std::vector<std::string>& recipes) {
  const LinearShape shapes[] = {{.name = "qkv", .in = 1024, .out = 3072, .bias = true},
                                {.name = "out", .in = 1024, .out = 1024, .bias = true},
                                {.name = "fc", .in = 1024, .out = 4096, .bias = true},
                                {.name = "proj", .in = 4096, .out = 1024, .bias = true}};
  const auto engine =
      make_cuda_engine({.notice = [](const std::string& text) { std::fputs((text + "\n").c_str(), stderr); }});
  std::vector<std::unique_ptr<TimedLayer>> layers;  // they stay: the engine knows their sites by address
  for (const std::string& recipe : recipes) {
    for (const LinearShape& shape : shapes) {
      layers.push_back(std::make_unique<TimedLayer>(*engine, recipe, shape, tokens));
      print(recipe, shape, tokens, layers.back()->milliseconds());
    }
  }
  return 0;
}

}  // namespace
}  // namespace quaver

// bench_linear_layer [tokens [recipe …]]
int main(int count, char** arguments) {
  try {
    std::vector<std::string> recipes(arguments + std::min(count, 2), arguments + count);
    if (recipes.empty()) recipes = {"bf16", "fp8-delayed", "fp8-current", "fp8-block"};
    return quaver::run(count > 1 ? std::stol(arguments[1]) : 65536, recipes);
  } catch (const quaver::Error& error) {
    std::fprintf(stderr, "%s: %s\n", error.what(), error.remedy().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}
