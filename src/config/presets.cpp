#include "config/presets.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/suggest.h"
#include "config/value_text.h"
#include "quaver/error.h"

namespace quaver {
namespace {

// Runs of a few hundred steps: a warm-up of fewer than 40 ends in a spike of the gradient norm.
constexpr Preset tiny = {"tiny", "GPT, 4 × 128: for a first run on a CPU", R"(
[model]
family = "gpt"
layers = 4
width = 128
heads = 4
context = 128
[train]
batch = 16
steps = 300
checkpoint_every = 100
[optim]
learning_rate = 2e-3
warmup = 0.2
)"};

constexpr Preset tiny_llama = {"tiny-llama", "Llama, 4 × 128 with grouped queries: the same scale", R"(
[model]
family = "llama"
layers = 4
width = 128
heads = 4
kv_heads = 2
context = 128
[train]
batch = 16
steps = 300
checkpoint_every = 100
[optim]
learning_rate = 2e-3
warmup = 0.2
)"};

constexpr Preset small = {"small", "GPT, 4 × 256, 3.3 million parameters on bytes: the reference for comparing recipes",
                          R"(
[model]
family = "gpt"
layers = 4
width = 256
heads = 4
context = 256
[train]
batch = 16
steps = 1000
[optim]
learning_rate = 1e-3
)"};

// Half a million tokens per step, here and below, in micro-batches for one GPU.
constexpr Preset gpt_124m = {"gpt-124m", "GPT-2 small, 12 × 768, for about 10 billion tokens", R"(
[model]
family = "gpt"
layers = 12
width = 768
heads = 12
vocab = 50304
context = 1024
[train]
batch = 16
accumulation = 32
steps = 20000
eval_every = 250
eval_batches = 20
checkpoint_every = 1000
[optim]
learning_rate = 6e-4
warmup = 0.035
)"};

constexpr Preset gpt_350m = {"gpt-350m", "GPT-2 medium, 24 × 1024, for about 30 billion tokens", R"(
[model]
family = "gpt"
layers = 24
width = 1024
heads = 16
vocab = 50304
context = 1024
[train]
batch = 16
accumulation = 32
steps = 60000
eval_every = 250
eval_batches = 20
checkpoint_every = 1000
[optim]
learning_rate = 3e-4
warmup = 0.02
)"};

// Vocabulary, norms and rotary base of the Qwen2.5 models as published, so that their weights can be read.
constexpr Preset qwen_half_b = {"qwen2.5-0.5b", "The shape of Qwen2.5-0.5B, 24 × 896, for about 10 billion tokens", R"(
[model]
family = "llama"
layers = 24
width = 896
heads = 14
kv_heads = 2
head_size = 64
ffn = 4864
vocab = 151936
context = 32768
tie_head = "yes"
qkv_bias = true
norm_eps = 1e-6
rope_theta = 1e6
[train]
context = 2048
batch = 8
accumulation = 32
steps = 20000
eval_every = 250
eval_batches = 20
checkpoint_every = 1000
[optim]
learning_rate = 4e-4
warmup = 0.02
)"};

constexpr Preset qwen_one_and_a_half_b = {"qwen2.5-1.5b",
                                          "The shape of Qwen2.5-1.5B, 28 × 1536, for about 30 billion tokens", R"(
[model]
family = "llama"
layers = 28
width = 1536
heads = 12
kv_heads = 2
head_size = 128
ffn = 8960
vocab = 151936
context = 32768
tie_head = "yes"
qkv_bias = true
norm_eps = 1e-6
rope_theta = 1e6
[train]
context = 2048
batch = 8
accumulation = 32
steps = 60000
eval_every = 250
eval_batches = 20
checkpoint_every = 1000
[optim]
learning_rate = 3e-4
warmup = 0.02
)"};

constexpr Preset mlp_tiny = {"mlp-tiny", "Dense classifier, 3 × 256, of generated images: a run of seconds on a CPU",
                             R"(
[model]
family = "mlp"
layers = 3
width = 256
[data]
kind = "synthetic-images"
[train]
batch = 128
steps = 600
eval_batches = 16
[optim]
learning_rate = 2e-3
)"};

constexpr Preset convnet_small = {
    "convnet-small", "Convolution network, 3 residual blocks of 16 to 64 channels, of generated images: for a CPU", R"(
[model]
family = "convnet"
stage_widths = "16,32,64"
stage_blocks = "1,1,1"
[data]
kind = "synthetic-images"
synthetic_tile = 4
synthetic_strength = 5
[train]
batch = 64
steps = 300
eval_batches = 16
[optim]
learning_rate = 5e-3
)"};

// The first convolution is that for small images: 3×3, and no pooling behind it.
constexpr Preset resnet_18 = {"resnet-18", "The shape of ResNet-18 for images of 32 × 32 pixels in 3 channels", R"(
[model]
family = "convnet"
stage_widths = "64,128,256,512"
stage_blocks = "2,2,2,2"
[data]
kind = "synthetic-images"
synthetic_pixels = 3072
synthetic_channels = 3
synthetic_tile = 4
synthetic_strength = 8
[train]
batch = 256
steps = 2000
eval_batches = 16
[optim]
learning_rate = 1e-3
)"};

}  // namespace

const std::vector<Preset>& presets() {
  static const std::vector<Preset> all = {
      tiny,     tiny_llama,    small,    gpt_124m, gpt_350m, qwen_half_b, qwen_one_and_a_half_b,
      mlp_tiny, convnet_small, resnet_18};
  return all;
}

std::vector<std::string> preset_names() {
  std::vector<std::string> names;
  for (const Preset& preset : presets()) names.emplace_back(preset.name);
  return names;
}

const Preset& find_preset(std::string_view name) {
  const auto found = std::ranges::find(presets(), name, &Preset::name);
  if (found != presets().end()) return *found;
  const auto names = preset_names();
  throw Error(fmt::format("there is no preset {}", quoted_excerpt(name)),
              fmt::format("{} The presets are {}", did_you_mean(name, names), fmt::join(names, ", ")));
}

}  // namespace quaver
