// One linear layer learns a matrix, with its GEMMs in FP8: recipes, casts, statistics and delayed scales in 60 lines.
#include <cmath>
#include <cstdio>
#include <quaver/error.h>
#include <quaver/linear.h>
#include <quaver/plan.h>
#include <quaver/quantize.h>
#include <quaver/recipe.h>
#include <quaver/runs.h>
#include <quaver/scales.h>
#include <quaver/training.h>
#include <quaver/version.h>
#include <vector>

namespace {

constexpr int tokens = 64;
constexpr int width = 32;

std::vector<float> waves(int count, float frequency) {
  std::vector<float> values(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) values[static_cast<std::size_t>(i)] = std::sin(frequency * static_cast<float>(i * i));
  return values;
}

// The mean squared error after each step of gradient descent towards y = x·wᵀ.
double learn(const std::string& recipe) {
  quaver::LinearLayer layer({.in = width, .out = width, .recipe = recipe});
  quaver::LinearLayer target({.in = width, .out = width, .recipe = "fp32"});
  target.set_weight(waves(width * width, 0.37F));
  const std::vector<float> x = waves(tokens * width, 0.71F);
  std::vector<float> weight(width * width), y(tokens * width), wanted(tokens * width), dx(tokens * width);
  target.forward(x, wanted, quaver::LinearPass::evaluate);
  double error = 0;
  for (int step = 0; step < 200; ++step) {
    layer.set_weight(weight);
    layer.forward(x, y);
    error = 0;
    for (std::size_t i = 0; i < y.size(); ++i) {
      y[i] = (y[i] - wanted[i]) / tokens;
      error += y[i] * y[i] * tokens / width;
    }
    layer.backward(y, dx);
    const std::vector<float> gradient = layer.weight_gradient();
    for (std::size_t i = 0; i < weight.size(); ++i) weight[i] -= gradient[i];
    layer.end_step();
  }
  std::printf("%-12s error %.5f, x: amax %.3f, scale %.1f\n", recipe.c_str(), error,
              static_cast<double>(layer.statistics(quaver::Role::x).amax),
              static_cast<double>(layer.scale(quaver::Role::x)));
  return error;
}

}  // namespace

int main() {
  try {
    std::printf("%s\n", quaver::describe(quaver::find_recipe("fp8-delayed")).c_str());
    const double high = learn("fp32");
    const double low = learn("fp8-delayed");
    return high < 0.5 && low < 0.5 ? 0 : 1;
  } catch (const quaver::Error& error) {
    std::fprintf(stderr, "%s\n  -> %s\n", error.what(), error.remedy().c_str());
    return 1;
  }
}
