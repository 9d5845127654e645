#include "models/model_config.h"

#include <charconv>
#include <cmath>
#include <fmt/format.h>

#include "quaver/error.h"

namespace quaver {

namespace {

Size rounded_up(Size value, Size multiple) { return (value + multiple - 1) / multiple * multiple; }

void check_shape(const ModelConfig& config) {
  if (config.heads % config.kv_heads != 0) {
    throw Error(fmt::format("model.heads = {} is not a multiple of model.kv_heads = {}", config.heads, config.kv_heads),
                "choose a number of key heads that divides the number of heads");
  }
  if (config.family == Family::llama && config.head_size % 2 != 0) {
    throw Error(fmt::format("a head of {} columns has no two halves to rotate", config.head_size),
                "make model.head_size even");
  }
  if (config.family == Family::llama && config.activation != MlpActivation::automatic) {
    throw Error("model.activation is GPT's choice: a Llama model's MLPs are SwiGLU",
                "leave model.activation = \"auto\", or set model.family = \"gpt\"");
  }
  if (config.init == Init::he) {
    throw Error("model.init = \"he\" is for a model without a residual stream", "leave model.init = \"auto\"");
  }
  const bool unit = config.parametrization != Parametrization::standard;
  if (unit && config.tie_head == TieHead::yes) {
    throw Error("a unit-scaled model cannot tie its head to the embedding: the two need different scale factors",
                "set model.tie_head = \"no\"");
  }
  if (unit && config.lora_rank > 0) {
    throw Error("lora.rank: a unit-scaled model has no adapters",
                "set lora.rank = 0, or model.parametrization = \"standard\"");
  }
  if (unit != (config.init == Init::unit)) {
    throw Error("model.init = \"unit\" and the unit-scaled parametrisations need each other",
                "leave model.init = \"auto\"");
  }
}

const char* name_of(Family family) { return family == Family::convnet ? "convnet" : "mlp"; }

void check_image(const ModelConfig& config) {
  if (config.image_height <= 0 || config.image_width <= 0 || config.image_channels <= 0) {
    throw Error("the images' height, width and channels are not known", "give the model images: set data.kind");
  }
  const Size pixels = config.image_height * config.image_width * config.image_channels;
  if (pixels != config.features) {
    throw Error(fmt::format("images of {} × {} pixels in {} channels are not {} features", config.image_height,
                            config.image_width, config.image_channels, config.features),
                "leave model.features = 0, and the image's extents too");
  }
  if (config.stem_kernel % 2 == 0) {
    throw Error(fmt::format("model.stem_kernel = {} has no pixel in its middle", config.stem_kernel),
                "choose an odd number");
  }
}

std::vector<Size> numbers_in(const char* key, const std::string& list) {
  constexpr Size most = 1 << 16;
  std::vector<Size> numbers;
  const char* at = list.data();
  const char* const end = at + list.size();
  while (numbers.empty() || at != end) {
    if (!numbers.empty()) ++at;  // the comma
    Size number = 0;
    const auto [behind, error] = std::from_chars(at, end, number);
    const bool ended = behind == end || *behind == ',';
    if (error != std::errc{} || !ended || number < 1 || number > most) {
      throw Error(fmt::format("{} = \"{}\" is not a list of numbers from 1 to {}", key, list, most),
                  "separate them by commas, without spaces, as in \"64,128,256\"");
    }
    numbers.push_back(number);
    at = behind;
  }
  return numbers;
}

ModelConfig resolved_classifier(ModelConfig config) {
  const char* family = name_of(config.family);
  if (config.lora_rank > 0) {
    throw Error(fmt::format("lora.rank: a model of family \"{}\" has no adapters", family), "set lora.rank = 0");
  }
  if (config.parametrization == Parametrization::automatic) config.parametrization = Parametrization::standard;
  const bool mlp = config.family == Family::mlp;
  const bool unit = config.parametrization != Parametrization::standard;
  if (unit && (!mlp || config.parametrization == Parametrization::munit)) {
    throw Error(
        fmt::format("model.parametrization is not available for model.family = \"{}\"", family),
        mlp ? "set it to \"standard\" or \"umup\"" : "set it to \"standard\", and choose a recipe other than fp8-unit");
  }
  if (config.init == Init::automatic) config.init = unit ? Init::unit : Init::he;
  const bool has_init =
      unit ? config.init == Init::unit : config.init == Init::he || (mlp && config.init == Init::gpt2);
  if (!has_init) {
    throw Error(fmt::format("model.init is not for such a model of family \"{}\"", family),
                "leave model.init = \"auto\"");
  }
  if (config.features <= 0 || config.classes <= 0) {
    throw Error("the model's features and classes are not known", "give it images: set data.kind");
  }
  config.context = 1;
  if (config.family != Family::convnet) return config;
  check_image(config);
  const std::vector<Stage> stages = stages_of(config);
  config.width = stages.back().width;
  config.layers = 0;
  for (const Stage& stage : stages) config.layers += stage.blocks;
  return config;
}

// The image's extents where the config leaves them to the data; others are compared with it later, as a product.
ModelConfig for_images(ModelConfig config, const DataShape& data) {
  if (config.family != Family::convnet) return config;
  if (data.height == 0) {
    throw Error("the data has no images of a known height and width", "use data of images, or model.family = \"mlp\"");
  }
  if (config.image_height == 0) config.image_height = data.height;
  if (config.image_width == 0) config.image_width = data.width;
  if (config.image_channels == 0) config.image_channels = data.channels;
  if (config.image_height == data.height && config.image_width == data.width &&
      config.image_channels == data.channels) {
    return config;
  }
  throw Error(fmt::format("the data has images of {} × {} pixels in {} channels, and the model reads {} × {} in {}",
                          data.height, data.width, data.channels, config.image_height, config.image_width,
                          config.image_channels),
              "leave model.image_height, model.image_width and model.image_channels 0 to take the data's");
}

}  // namespace

std::vector<Stage> stages_of(const ModelConfig& config) {
  const std::vector<Size> widths = numbers_in("model.stage_widths", config.stage_widths);
  const std::vector<Size> blocks = numbers_in("model.stage_blocks", config.stage_blocks);
  if (widths.size() != blocks.size()) {
    throw Error(
        fmt::format("model.stage_widths names {} stages, and model.stage_blocks {}", widths.size(), blocks.size()),
        "give one number per stage in both");
  }
  std::vector<Stage> stages;
  for (std::size_t i = 0; i < widths.size(); ++i) stages.push_back({widths[i], blocks[i]});
  return stages;
}

ModelConfig for_data(ModelConfig config, const DataShape& data) {
  if (classifies_images(config.family)) {
    if (data.features == 0) {
      throw Error(fmt::format("the data is text, and model.family = \"{}\" classifies images", name_of(config.family)),
                  "set data.kind = \"idx\" or \"synthetic-images\"");
    }
    if (config.features == 0) config.features = data.features;
    if (config.classes == 0) config.classes = data.classes;
    if (config.features == data.features && config.classes >= data.classes) return for_images(config, data);
    throw Error(fmt::format("the data has {} features in {} classes, and the model reads {} in {}", data.features,
                            data.classes, config.features, config.classes),
                "leave model.features and model.classes 0 to take the data's");
  }
  if (data.vocab == 0) {
    throw Error("the data has no tokens, and this model is a language model",
                "set data.kind = \"dataset\", or model.family = \"mlp\" or \"convnet\"");
  }
  if (config.vocab == 0) config.vocab = rounded_up(data.vocab, 64);
  if (config.vocab < data.vocab) {
    throw Error(fmt::format("model.vocab = {} is smaller than the data's vocabulary of {}", config.vocab, data.vocab),
                "raise model.vocab, or leave it 0 to take the data's");
  }
  return config;
}

ModelConfig resolved(ModelConfig config) {
  if (classifies_images(config.family)) return resolved_classifier(config);
  if (config.parametrization == Parametrization::automatic) config.parametrization = Parametrization::standard;
  const bool unit = config.parametrization != Parametrization::standard;
  if (config.vocab <= 0) throw Error("the model's vocabulary is not known", "set model.vocab or give a data set");
  if (config.kv_heads == 0) config.kv_heads = config.heads;
  if (config.head_size == 0) {
    if (config.width % config.heads != 0) {
      throw Error(fmt::format("model.width = {} does not divide into {} heads", config.width, config.heads),
                  "choose a width that is a multiple of model.heads, or set model.head_size");
    }
    config.head_size = config.width / config.heads;
  }
  if (config.ffn == 0)
    config.ffn = config.family == Family::gpt ? 4 * config.width : rounded_up(8 * config.width / 3, 64);
  if (config.tie_head == TieHead::automatic) {
    config.tie_head = config.family == Family::gpt && !unit ? TieHead::yes : TieHead::no;
  }
  if (config.init == Init::automatic) config.init = unit ? Init::unit : Init::depth;
  if (config.attention_scale == 0) {
    const auto e = static_cast<double>(config.head_size);
    config.attention_scale = unit ? 1 / e : 1 / std::sqrt(e);
  }
  check_shape(config);
  return config;
}

}  // namespace quaver
