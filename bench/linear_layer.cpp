// The linear layers of GPT 350M inside the CUDA engine: cast of the weight, forward and backward with their casts, as
// the layers of a model run them, but for casts that a model fuses into their producers. It times one layer for each
// line that it reads, so that bench/rivals/linear_layer.py can time it in turn with quaver.Linear.
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/cuda_module.h"
#include "engine/sizing_engine.h"
#include "formats/random.h"
#include "nn/linear.h"
#include "quaver/error.h"
#include "train/resolved_config.h"

namespace quaver {
namespace {

constexpr int warm_up = 40;  // the same numbers as in linear_layer.py
constexpr int timed = 20;

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

  // Delayed scales, from the first pass.
  void set_scales() {
    run();
    engine_.wait_for_statistics(sites_);
    registry_.book().end_step(1);
    engine_.upload_scales(sites_);
  }

  double median_milliseconds() {
    std::vector<double> times;
    for (int i = 0; i < warm_up; ++i) run();
    for (int i = 0; i < timed; ++i) {
      engine_.device().time([&] { run(); }, [&](double seconds) { times.push_back(1000 * seconds); });
    }
    engine_.device().synchronize();
    std::ranges::sort(times);
    return times[times.size() / 2];
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

LinearShape shape_of(const std::string& name) {
  if (name == "qkv") return {.name = name, .in = 1024, .out = 3072, .bias = true};
  if (name == "out") return {.name = name, .in = 1024, .out = 1024, .bias = true};
  if (name == "fc") return {.name = name, .in = 1024, .out = 4096, .bias = true};
  if (name == "proj") return {.name = name, .in = 4096, .out = 1024, .bias = true};
  throw Error("there is no layer " + name, "choose qkv, out, fc or proj");
}

void answer_lines(Size tokens) {
  const auto engine =
      make_cuda_engine({.notice = [](const std::string& text) { std::fputs((text + "\n").c_str(), stderr); }});
  std::map<std::string, std::unique_ptr<TimedLayer>> layers;  // they stay: the engine knows their sites by address
  for (std::string line; std::getline(std::cin, line);) {
    std::unique_ptr<TimedLayer>& layer = layers[line];
    if (layer == nullptr) {
      const std::size_t space = line.find(' ');
      const std::string name = space == std::string::npos ? "" : line.substr(space + 1);
      layer = std::make_unique<TimedLayer>(*engine, line.substr(0, space), shape_of(name), tokens);
      layer->set_scales();
    }
    std::printf("%.5f\n", layer->median_milliseconds());
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace quaver

// bench_linear_layer [tokens]: reads lines such as "fp8-delayed qkv", and answers each with milliseconds.
int main(int count, char** arguments) {
  try {
    quaver::answer_lines(count > 1 ? std::stol(arguments[1]) : 65536);
    return 0;
  } catch (const quaver::Error& error) {
    std::fprintf(stderr, "%s: %s\n", error.what(), error.remedy().c_str());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  }
  return 1;
}
