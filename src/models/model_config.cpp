#include "models/model_config.h"

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

ModelConfig resolved_mlp(ModelConfig config) {
  if (config.lora_rank > 0) {
    throw Error("lora.rank: a model of family \"mlp\" has no adapters", "set lora.rank = 0");
  }
  if (config.parametrization == Parametrization::automatic) config.parametrization = Parametrization::standard;
  if (config.parametrization != Parametrization::standard) {
    throw Error("unit scaling is not available for model.family = \"mlp\"",
                "set model.parametrization = \"standard\", and a recipe other than fp8-unit");
  }
  if (config.init == Init::automatic) config.init = Init::he;
  if (config.init != Init::he && config.init != Init::gpt2) {
    throw Error("a model of family \"mlp\" has no residual stream, and no unit scaling",
                "set model.init = \"he\" or \"gpt2\"");
  }
  if (config.features <= 0 || config.classes <= 0) {
    throw Error("the model's features and classes are not known", "give it images: set data.kind");
  }
  config.context = 1;
  return config;
}

}  // namespace

ModelConfig for_data(ModelConfig config, const DataShape& data) {
  if (config.family == Family::mlp) {
    if (data.features == 0) {
      throw Error("the data is text, and model.family = \"mlp\" classifies images",
                  "set data.kind = \"idx\" or \"synthetic-images\"");
    }
    if (config.features == 0) config.features = data.features;
    if (config.classes == 0) config.classes = data.classes;
    if (config.features == data.features && config.classes >= data.classes) return config;
    throw Error(fmt::format("the data has {} features in {} classes, and the model reads {} in {}", data.features,
                            data.classes, config.features, config.classes),
                "leave model.features and model.classes 0 to take the data's");
  }
  if (data.vocab == 0) {
    throw Error("the data has no tokens, and this model is a language model",
                "set data.kind = \"dataset\", or model.family = \"mlp\"");
  }
  if (config.vocab == 0) config.vocab = rounded_up(data.vocab, 64);
  if (config.vocab < data.vocab) {
    throw Error(fmt::format("model.vocab = {} is smaller than the data's vocabulary of {}", config.vocab, data.vocab),
                "raise model.vocab, or leave it 0 to take the data's");
  }
  return config;
}

ModelConfig resolved(ModelConfig config) {
  if (config.family == Family::mlp) return resolved_mlp(config);
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
