#include "config/check.h"

#include <algorithm>
#include <fmt/format.h>

#include "config/settings.h"
#include "config/value_text.h"
#include "precision/plan.h"
#include "precision/recipe.h"
#include "quaver/error.h"

namespace quaver {
namespace {

bool is_unit_scaled(const Config& config) {
  if (config.model.parametrization == Parametrization::automatic) {
    return is_unscaled(make_recipe(config.precision.recipe, config.precision));
  }
  return config.model.parametrization != Parametrization::standard;
}

void check_heads(const ModelConfig& model) {
  if (classifies_images(model.family)) return;
  if (model.head_size == 0 && model.width % model.heads != 0) {
    throw Error(fmt::format("model.heads = {} does not divide model.width = {}", model.heads, model.width),
                "choose heads that divide the width, or set model.head_size");
  }
  if (model.kv_heads != 0 && model.heads % model.kv_heads != 0) {
    throw Error(fmt::format("model.kv_heads = {} does not divide model.heads = {}", model.kv_heads, model.heads),
                "each key and value head is shared by the same number of heads; choose a divisor");
  }
  const Size head_size = model.head_size != 0 ? model.head_size : model.width / model.heads;
  if (model.family == Family::llama && head_size % 2 != 0) {
    throw Error(fmt::format("heads of odd size {} cannot have rotary positions, which turn pairs of values", head_size),
                "choose model.width, model.heads or model.head_size so that the head size is even");
  }
}

void check_parametrization(const Config& config) {
  const ModelConfig& model = config.model;
  const bool unit_scaled = is_unit_scaled(config);
  const bool mlp = model.family == Family::mlp;
  const bool classifies = classifies_images(model.family);
  if (unit_scaled && !model.from.empty()) {
    throw Error("model.from with a unit-scaled parametrization: the weights of a Hugging Face model are not of N(0, 1)",
                "choose a recipe other than fp8-unit, and leave model.parametrization = auto");
  }
  if (unit_scaled && classifies && (!mlp || model.parametrization == Parametrization::munit)) {
    throw Error(mlp ? "model.parametrization = munit is not available for model.family = mlp, which has no norms"
                    : "unit scaling is not available for model.family = convnet",
                mlp ? "leave model.parametrization = auto, which is umup for the recipe fp8-unit"
                    : "choose a recipe other than fp8-unit, and leave model.parametrization = auto");
  }
  const bool classifier_init =
      model.init == Init::he || (mlp && (model.init == Init::gpt2 || model.init == Init::unit));
  if (model.init != Init::automatic && (classifies ? !classifier_init : model.init == Init::he)) {
    throw Error(mlp          ? "model.init = depth is not for model.family = mlp, which has no residual stream"
                : classifies ? "model.init is not for model.family = convnet, which has He's initialization"
                             : "model.init = he is for model.family = mlp and convnet, which classify images",
                "leave model.init = auto");
  }
  if (unit_scaled && model.tie_head == TieHead::yes) {
    throw Error(
        "model.tie_head = yes with a unit-scaled model: the embedding's output is used as it is, the head's is "
        "divided by the width, and one matrix cannot have two scales and two learning rates",
        "set model.tie_head = no, or model.parametrization = standard");
  }
  if (!unit_scaled && model.init == Init::unit) {
    throw Error(
        "model.init = unit without a unit-scaled parametrization: weights of N(0, 1) without the factors of unit "
        "scaling make activations grow by the square root of the width in every layer",
        "set model.init = auto, or model.parametrization = umup or munit");
  }
  if (unit_scaled && model.init != Init::automatic && model.init != Init::unit) {
    throw Error("a unit-scaled model needs weights of N(0, 1): its factors assume them",
                "set model.init = auto, or model.parametrization = standard");
  }
}

void check_family(const Config& config) {
  const bool classifies = classifies_images(config.model.family);
  if (has_images(config.data.kind) && !classifies) {
    throw Error("data.kind names images, and model.family a language model, which reads tokens",
                "set data.kind = dataset or synthetic, or model.family = mlp or convnet");
  }
  if (!has_images(config.data.kind) && classifies) {
    throw Error(fmt::format("model.family = {} classifies images, and data.kind names text",
                            config.model.family == Family::mlp ? "mlp" : "convnet"),
                "set data.kind = idx or synthetic-images");
  }
}

void check_rope(const ModelConfig& model) {
  if (model.rope_factor == 1 || model.rope_low_frequency < model.rope_high_frequency) return;
  throw Error(fmt::format("model.rope_low_frequency = {} is not below model.rope_high_frequency = {}",
                          number_text(model.rope_low_frequency), number_text(model.rope_high_frequency)),
              "Llama 3.1 has 1 and 4");
}

void check_context(const Config& config) {
  if (classifies_images(config.model.family)) {
    if (config.train.context <= 1) return;
    throw Error(fmt::format("train.context = {} with a classifier of images: an image is not a sequence of tokens",
                            config.train.context),
                "leave train.context = 0");
  }
  if (config.train.context > config.model.context) {
    throw Error(
        fmt::format("train.context = {} is longer than model.context = {}", config.train.context, config.model.context),
        "raise model.context, or set train.context = 0 to use all of it");
  }
}

void check_optim(const OptimConfig& optim) {
  if (optim.schedule == ScheduleShape::wsd && optim.warmup + optim.decay > 1) {
    throw Error(fmt::format("optim.warmup = {} and optim.decay = {} are together more than the whole run",
                            number_text(optim.warmup), number_text(optim.decay)),
                "they are shares of the steps; lower one of them");
  }
}

void check_wide_share(std::string_view key, double share) {
  if (share >= 0 || share == -1) return;
  throw Error(fmt::format("precision.{} = {} is no share of the blocks", key, number_text(share)),
              "use 0 to 1, or -1 for the recipe's own");
}

void check_precision(const PrecisionConfig& precision) {
  check_wide_share("wide_start", precision.wide_start);
  check_wide_share("wide_tail", precision.wide_tail);
  for (const auto& [key, speed] : precision.layer_speeds) {
    const auto names = [&key = key](std::string_view recipe) { return key.ends_with(speed_key("", recipe)); };
    const bool known = std::ranges::any_of(recipes(), names, &RecipeInfo::name) ||
                       std::ranges::any_of(precision.recipes, names, &RecipeTable::value_type::first);
    if (speed > 0 && known) continue;
    throw Error(fmt::format("precision.layer_speeds: {} = {} is no speed of a layer in a recipe", quoted_excerpt(key),
                            number_text(speed)),
                "write for example \"blocks.*.mlp.up in fp8-delayed\" = 0.93");
  }
}

void check_data(const Config& config, Purpose purpose) {
  const DataConfig& data = config.data;
  if (data.kind == DataKind::synthetic_images) {
    if (data.synthetic_classes > data.synthetic_pixels) {
      throw Error(fmt::format("data.synthetic_classes = {} is more than data.synthetic_pixels = {}",
                              data.synthetic_classes, data.synthetic_pixels),
                  "each class has a pattern of its own, orthogonal to the others: choose more pixels");
    }
  } else if (has_image_files(data.kind)) {
    if (purpose == Purpose::training && data.path.empty()) {
      throw Error("data.path is empty: there is nothing to train on",
                  data.kind == DataKind::idx
                      ? "set it to a folder with the four files of MNIST, or of a data set like it"
                      : "set it to the folder of the images");
    }
  } else if (data.kind == DataKind::examples) {
    if (purpose == Purpose::training && data.path.empty()) {
      throw Error("data.path is empty: there is nothing to train on",
                  "set it to a file of JSON lines, one example per line");
    }
  } else if (data.kind == DataKind::synthetic) {
    if (config.model.vocab != 0 && config.model.vocab < data.synthetic_vocab) {
      throw Error(fmt::format("model.vocab = {} is smaller than data.synthetic_vocab = {}", config.model.vocab,
                              data.synthetic_vocab),
                  "set model.vocab = 0 to follow the data");
    }
  } else if (purpose == Purpose::training && data.path.empty()) {
    throw Error("data.path is empty: there is nothing to train on",
                "make a data set with `quaver data` and set data.path to its folder, or set data.kind = synthetic");
  }
}

// A run's name becomes the name of its folder, and is shown in terminals and on the dashboard.
void check_run(const RunConfig& run, Purpose purpose) {
  constexpr std::size_t longest_name = 128;
  if (purpose != Purpose::training || run.name.empty() || !run.dir.empty()) return;
  const bool printable =
      std::none_of(run.name.begin(), run.name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7F; });
  const bool single = run.name.find('/') == std::string::npos && run.name != "." && run.name != "..";
  if (printable && single && run.name.size() <= longest_name) return;
  throw Error(fmt::format("run.name = {} is not the name of a folder in runs: {}", quoted_excerpt(run.name),
                          !printable ? "it has control characters"
                          : !single  ? "it leads elsewhere"
                                     : fmt::format("it has more than {} bytes", longest_name)),
              "choose a plain name, or set run.dir to the folder where the run is written");
}

}  // namespace

void check(const Config& config, Purpose purpose) {
  for (const Key& key : schema()) {
    const Value value = conform(key, key.get(config), "config");
    check_recipe_names({&key, std::nullopt, value, "config"}, config.precision.recipes);
  }
  check_heads(config.model);
  check_rope(config.model);
  check_parametrization(config);
  check_family(config);
  check_context(config);
  check_optim(config.optim);
  check_precision(config.precision);
  check_data(config, purpose);
  check_run(config.run, purpose);
}

}  // namespace quaver
