// The linear layer of the public headers, on the CPU and on the GPU.
#include <cmath>
#include <gtest/gtest.h>

#include "engine/cuda_module.h"
#include "formats/random.h"
#include "quaver/linear.h"
#include "quaver/recipe.h"

namespace quaver::test {
namespace {

constexpr std::size_t tokens = 96;
constexpr std::size_t in = 256;
constexpr std::size_t out = 160;

std::vector<float> normals(std::size_t count, std::uint32_t stream) {
  std::vector<float> values(count);
  random_normals({3, 0, stream}, 0, values.data(), static_cast<Size>(count));
  return values;
}

struct LayerPass {
  explicit LayerPass(LinearLayer layer) {
    layer.set_weight(normals(out * in, 1));
    for (int step = 0; step < 2; ++step) {  // the second one with delayed scales
      layer.forward(normals(tokens * in, 2), y);
      layer.backward(normals(tokens * out, 3), dx);
      dw = layer.weight_gradient();
      layer.end_step();
    }
    amax = layer.statistics(Role::dy).amax;
    scale = layer.scale(Role::x);
  }
  std::vector<float> y = std::vector<float>(tokens * out);
  std::vector<float> dx = std::vector<float>(tokens * in);
  std::vector<float> dw;
  float amax = 0;
  float scale = 0;
};

double relative_error(const std::vector<float>& found, const std::vector<float>& expected) {
  double error = 0;
  double power = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    error += std::pow(found[i] - expected[i], 2);
    power += std::pow(expected[i], 2);
  }
  return std::sqrt(error / power);
}

TEST(LibraryLayerTest, ComputesOnTheGpuWhatItComputesOnTheCpu) {
  if (inspect_cuda().state != CudaState::ready) GTEST_SKIP() << "no GPU that the CUDA engine can use";
  for (const RecipeInfo& recipe : recipes()) {
    SCOPED_TRACE(recipe.name);
    LinearSettings settings{.in = in, .out = out, .recipe = std::string(recipe.name), .device = LinearDevice::cpu};
    const LayerPass cpu{LinearLayer(settings)};
    settings.device = LinearDevice::cuda;
    const LayerPass gpu{LinearLayer(settings)};
    EXPECT_LT(relative_error(gpu.y, cpu.y), 2e-3);
    EXPECT_LT(relative_error(gpu.dx, cpu.dx), 2e-3);
    EXPECT_LT(relative_error(gpu.dw, cpu.dw), 2e-3);
    EXPECT_EQ(gpu.amax, cpu.amax);
    EXPECT_EQ(gpu.scale, cpu.scale);
  }
}

}  // namespace
}  // namespace quaver::test
