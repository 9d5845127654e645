// The shape and parametrization of a model: everything that decides its parameters, nothing about how it is trained.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "formats/quant_spec.h"

namespace quaver {

enum class Family : std::uint8_t { gpt, llama, mlp, convnet };

constexpr bool classifies_images(Family family) { return family == Family::mlp || family == Family::convnet; }

// standard: GPT-2's or Llama's own. umup and munit: unit-scaled, so that tensors need no scale to fit 8 bits.
// automatic: umup for the recipe fp8-unit, standard for the others.
enum class Parametrization : std::uint8_t { automatic, standard, umup, munit };

// gpt2: N(0, init_std). depth: as gpt2, and projections into the residual stream divided by √(2·layers).
// unit: N(0, 1), which the unit-scaled parametrizations need. he: variance 2/fan_in in hidden layers of a classifier.
// automatic: depth for standard language models, he for classifiers, unit for unit-scaled models.
enum class Init : std::uint8_t { automatic, gpt2, depth, unit, he };

enum class TieHead : std::uint8_t { automatic, yes, no };  // automatic: tied for gpt unless unit-scaled, else not

// Of GPT's MLPs and of mlp; automatic: gelu. Llama's are SwiGLU.
enum class MlpActivation : std::uint8_t { automatic, gelu, relu };

// Of convnet. batch: of each channel over the pixels of a micro-batch. layer: of each pixel over its channels.
enum class FeatureNorm : std::uint8_t { batch, layer };

struct ModelConfig {
  std::string from;  // folder of a Hugging Face model that gave the shape and gives the first weights; empty: none
  Family family = Family::gpt;
  Parametrization parametrization = Parametrization::automatic;
  Size layers = 4;
  Size width = 256;
  Size heads = 4;
  Size kv_heads = 0;      // 0: as many as heads
  Size head_size = 0;     // 0: width / heads
  Size ffn = 0;           // 0: 4·width (gpt), 8/3·width rounded up to 64 (llama)
  Size vocab = 0;         // 0: the data set's, rounded up to a multiple of 64
  Size context = 256;     // longest sequence; classifiers: 1
  Size features = 0;      // classifiers: of one row; 0: the data's
  Size classes = 0;       // classifiers; 0: the data's
  Size image_height = 0;  // convnet: in pixels; 0: the data's, as are the next two
  Size image_width = 0;
  Size image_channels = 0;
  std::string stage_widths = "64,128,256,512";  // convnet: channels of each stage
  std::string stage_blocks = "2,2,2,2";         // convnet: residual blocks of each stage
  Size stem_kernel = 3;                         // convnet: of the first convolution
  Size stem_stride = 1;
  FeatureNorm feature_norm = FeatureNorm::batch;  // convnet
  TieHead tie_head = TieHead::automatic;
  bool qkv_bias = false;  // llama: biases on q, k, v (Qwen2); gpt always has biases unless unit-scaled
  MlpActivation activation = MlpActivation::automatic;
  bool qk_norm = false;  // RMS norm of each query and key head
  double norm_eps = 1e-5;
  double rope_theta = 10000;
  double rope_factor = 1;          // llama: as Llama 3.1 scales rotary frequencies (engine/rotary.h); 1: not at all
  double rope_low_frequency = 1;   // turns within the original context, below which they are divided by the factor …
  double rope_high_frequency = 4;  // … and above which they stay
  Size rope_original_context = 8192;
  Init init = Init::automatic;
  double init_std = 0.02;
  double activation_scale = 1;     // factor on every activation function's output (training without dynamic scaling)
  double activation_clip = 0;      // clamp of every activation function's output to ±this; 0: none
  double residual_alpha = 1;       // u-µP: α_res, weight of the branches against the embedding
  double attention_ratio = 1;      // u-µP: α_res_attn_ratio, attention branches against MLP branches
  double attention_scale = 0;      // factor on q·k; 0: 1/√head_size (standard), 1/head_size (unit-scaled)
  double residual_tau = 0;         // µnit: τ; 0: 0.4 at 4 layers falling to 0.1 at 40 and more
  Size base_width = 256;           // µnit: width at which the learning rate was chosen
  Size lora_rank = 0;              // of low-rank adapters, which alone are trained; 0: there are none
  double lora_alpha = 16;          // their output is multiplied by alpha / rank
  std::string lora_targets = "*";  // patterns of the layers that have one, separated by commas
};

// What of the data decides a model's shape; 0 where the data has no such thing.
struct DataShape {
  Size vocab = 0;     // tokens
  Size features = 0;  // of one row, such as an image's pixels
  Size classes = 0;
  Size height = 0;  // of an image; 0 where the rows are none
  Size width = 0;
  Size channels = 0;
};

// A stage of a convolution network: blocks that share a width. The first block of a stage behind another halves height
// and width of the feature map.
struct Stage {
  Size width = 0;
  Size blocks = 0;
};
// Throws Error where the config's lists are not numbers, or not equally many.
std::vector<Stage> stages_of(const ModelConfig& config);

// The config with what it leaves to the data: features and classes, or a vocabulary, the data's rounded up to a
// multiple of 64. Throws Error where what is given does not cover the data, and where the model does not take such
// data.
ModelConfig for_data(ModelConfig config, const DataShape& data);

// The config with every "0: …" and automatic choice made. Throws Error where it cannot be. What comes from the data
// must be set.
ModelConfig resolved(ModelConfig config);

}  // namespace quaver
