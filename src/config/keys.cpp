#include "config/keys.h"

#include <string>
#include <utility>

#include "config/presets.h"
#include "config/section_keys.h"
#include "precision/recipe.h"

namespace quaver {
namespace {

// Ranges are generous: they keep products of sizes within 64 bits and refuse what can only be a slip.
constexpr std::int64_t many = 1'000'000'000;
constexpr std::int64_t widest = std::int64_t{1} << 18;
constexpr std::int64_t longest = std::int64_t{1} << 22;

constexpr IntegerRange from(std::int64_t low, std::int64_t high) { return {low, high}; }
// No number is without bounds: what is beyond them is a slip, and would become infinite or zero as a float.
constexpr double largest_threshold = 1e12;
constexpr NumberRange any_above(double low) {
  return {.low = low, .high = largest_threshold, .low_end = RangeEnd::open};
}
constexpr NumberRange at_least(double low) { return {.low = low, .high = largest_threshold}; }
constexpr NumberRange factor{.low = 1e-6, .high = 1e6};
constexpr NumberRange scale{.low = 1e-12, .high = 1e12};
constexpr NumberRange between(double low, double high) { return {.low = low, .high = high}; }
constexpr NumberRange from_to_below(double low, double high) {
  return {.low = low, .high = high, .high_end = RangeEnd::open};
}

void add_preset(std::vector<Key>& keys) {
  Key key;
  key.name = "preset";
  key.type = ValueType::choice;
  key.doc = "Settings to start from, which files and flags then override.";
  for (const std::string& name : preset_names()) key.choices.push_back(name);
  key.get = [](const Config& config) { return Value(config.preset); };
  key.set = [](Config& config, const Value& value) { config.preset = std::get<std::string>(value); };
  keys.push_back(std::move(key));
}

void add_recipes(std::vector<Key>& keys) {
  Key key;
  key.name = "recipes";
  key.type = ValueType::recipe_table;
  key.doc = "Recipes of your own, a table each: see docs/recipes.md.";
  key.get = [](const Config& config) { return Value(config.precision.recipes); };
  key.set = [](Config& config, const Value& value) { config.precision.recipes = std::get<RecipeTable>(value); };
  keys.push_back(std::move(key));
}

void add_convnet_shape(SectionKeys<ModelConfig>& model) {
  using M = ModelConfig;
  model.integer("image_height", &M::image_height, from(0, widest),
                "convnet: rows of pixels in an image; 0: the data's.");
  model.integer("image_width", &M::image_width, from(0, widest),
                "convnet: pixels in a row of an image; 0: the data's.");
  model.integer("image_channels", &M::image_channels, from(0, widest), "convnet: values of a pixel; 0: the data's.");
  model.text("stage_widths", &M::stage_widths,
             "convnet: channels of each stage, separated by commas. Each stage behind the first halves the height and "
             "width of the feature map.");
  model.text("stage_blocks", &M::stage_blocks, "convnet: residual blocks of each stage, separated by commas.");
  model.integer("stem_kernel", &M::stem_kernel, from(1, 31), "convnet: size of the first convolution's window, odd.");
  model.integer("stem_stride", &M::stem_stride, from(1, 31),
                "convnet: by how many pixels the first convolution's window moves.");
  model.choice("feature_norm", &M::feature_norm, {{"batch", FeatureNorm::batch}, {"layer", FeatureNorm::layer}},
               "convnet: norms of each channel over the pixels of a micro-batch, with moving averages for evaluation "
               "(batch), or of each pixel over its channels (layer).");
}

void add_model_shape(SectionKeys<ModelConfig>& model) {
  using M = ModelConfig;
  model.text("from", &M::from,
             "Folder of a Hugging Face model (config.json, safetensors): it gives the shape, in place of the preset, "
             "and the initial weights; empty: the weights are random.");
  model.choice("family", &M::family,
               {{"gpt", Family::gpt}, {"llama", Family::llama}, {"mlp", Family::mlp}, {"convnet", Family::convnet}},
               "Architecture: gpt (layer norms, GELU, learned positions), llama (RMS norms, SwiGLU, rotary positions), "
               "or a classifier of images: mlp (dense) or convnet (residual blocks of convolutions with batch norms).");
  model.choice(
      "parametrization", &M::parametrization,
      {{"auto", Parametrization::automatic},
       {"standard", Parametrization::standard},
       {"umup", Parametrization::umup},
       {"munit", Parametrization::munit}},
      "standard: the family's own; umup (u-µP) and munit (µnit scaling): unit-scaled, so that tensors fit 8 bits "
      "without scales; auto: umup for the recipe fp8-unit, else standard.");
  model.integer("layers", &M::layers, from(1, 4096),
                "Number of blocks; mlp: of hidden layers; convnet: stage_blocks says it.");
  model.integer("width", &M::width, from(1, widest),
                "Width of the residual stream; mlp: of the hidden layers; convnet: stage_widths says it.");
  model.integer("heads", &M::heads, from(1, 4096), "Attention heads.");
  model.integer("kv_heads", &M::kv_heads, from(0, 4096),
                "Key and value heads, shared by groups of heads (GQA); 0: as many as heads.");
  model.integer("head_size", &M::head_size, from(0, 4096), "Width of a head; 0: width / heads.");
  model.integer("ffn", &M::ffn, from(0, 4 * widest),
                "Hidden width of the MLP; 0: 4·width (gpt), or 8/3·width rounded up to a multiple of 64 (llama).");
  model.integer("vocab", &M::vocab, from(0, longest),
                "Rows of the embedding; 0: the data set's vocabulary rounded up to a multiple of 64.");
  model.integer("context", &M::context, from(1, longest), "Longest sequence the model supports, in tokens.");
  model.integer("features", &M::features, from(0, widest),
                "mlp, convnet: values in one row, such as pixels; 0: the data's.");
  model.integer("classes", &M::classes, from(0, widest),
                "mlp, convnet: classes to tell apart; 0: as many as the data has.");
  add_convnet_shape(model);
  model.choice("tie_head", &M::tie_head, {{"auto", TieHead::automatic}, {"yes", TieHead::yes}, {"no", TieHead::no}},
               "Whether the output head shares the embedding's weights; auto: for gpt, unless it is unit-scaled.");
  model.boolean("qkv_bias", &M::qkv_bias,
                "llama: biases on queries, keys and values, as Qwen2 has; gpt has biases unless it is unit-scaled.");
  model.choice("activation", &M::activation,
               {{"auto", MlpActivation::automatic}, {"gelu", MlpActivation::gelu}, {"relu", MlpActivation::relu}},
               "gpt, mlp: activation function; auto: gelu. llama has SwiGLU.");
  model.boolean("qk_norm", &M::qk_norm,
                "RMS norm of each query and key head, which keeps attention logits from growing.");
}

void add_model_scaling(SectionKeys<ModelConfig>& model) {
  using M = ModelConfig;
  model.number("norm_eps", &M::norm_eps, {.low = 0, .high = 1, .low_end = RangeEnd::open},
               "Epsilon added to the variance in norms.");
  model.number("rope_theta", &M::rope_theta, at_least(1), "llama: base of the rotary frequencies.");
  model.number("rope_factor", &M::rope_factor, between(1, 1e6),
               "llama: what low rotary frequencies are divided by, as in Llama 3.1, for a context longer than the "
               "original one; 1: nothing is scaled.");
  model.number("rope_low_frequency", &M::rope_low_frequency, factor,
               "rope_factor: what turns fewer times within the original context is divided by the factor.");
  model.number("rope_high_frequency", &M::rope_high_frequency, factor,
               "rope_factor: what turns more times stays as it is; between the two it is interpolated.");
  model.integer("rope_original_context", &M::rope_original_context, from(1, longest),
                "rope_factor: the context that the model was trained with at first, in tokens.");
  model.choice(
      "init", &M::init,
      {{"auto", Init::automatic}, {"gpt2", Init::gpt2}, {"depth", Init::depth}, {"unit", Init::unit}, {"he", Init::he}},
      "Initial weights: gpt2: N(0, init_std); depth: the same, with projections into the residual stream divided "
      "by √(2·layers); unit: N(0, 1); he: variance 2/fan_in, and init_std in the head; auto: depth for standard "
      "language models, he for mlp and convnet, unit for unit-scaled models.");
  model.number("init_std", &M::init_std, {.low = 0, .high = 10, .low_end = RangeEnd::open},
               "Standard deviation of initial weights, for gpt2 and depth.");
  model.number("activation_scale", &M::activation_scale, factor, "Factor on the output of every activation function.");
  model.number("activation_clip", &M::activation_clip, between(0, 1e6),
               "Clamps the output of every activation function to ± this; 0: no clamp.");
  model.number("residual_alpha", &M::residual_alpha, factor,
               "u-µP: weight of the residual branches against the embedding (α_res).");
  model.number("attention_ratio", &M::attention_ratio, factor,
               "u-µP: weight of the attention branches against the MLP branches (α_res_attn_ratio).");
  model.number("attention_scale", &M::attention_scale, between(0, 1e6),
               "Factor on q·k; 0: 1/√head_size, or 1/head_size when unit-scaled.");
  model.number("residual_tau", &M::residual_tau, from_to_below(0, 1),
               "µnit: weight of a branch (τ); 0: 0.4 at 4 layers, falling to 0.1 at 40 and more.");
  model.integer("base_width", &M::base_width, from(1, widest),
                "µnit: the width at which the learning rate was chosen.");
}

void add_lora(std::vector<Key>& keys) {
  using M = ModelConfig;
  SectionKeys<M> lora(keys, "lora", &Config::model);
  lora.integer(
      "rank", &M::lora_rank, from(0, 4096),
      "Rank of low-rank adapters (LoRA), which alone are trained: all other parameters are frozen; 0: there are "
      "none.");
  lora.number("alpha", &M::lora_alpha, scale, "What an adapter adds is multiplied by alpha / rank.");
  lora.text("targets", &M::lora_targets,
            "Patterns of the layers that have an adapter, separated by commas, such as `*.attn.*,*.mlp.up`: any layers "
            "of blocks, not the head.");
}

void add_data(std::vector<Key>& keys) {
  using D = DataConfig;
  SectionKeys<D> data(keys, "data", &Config::data);
  data.text("path", &D::path,
            "A folder written by `quaver data`, or a file of tokens; for images, the folder of their files; for "
            "examples, a file of JSON lines.");
  data.text("valid_path", &D::valid_path,
            "A file of tokens, or of examples, to validate on; empty: the data set's own validation split.");
  data.text("tokenizer", &D::tokenizer,
            "For a bare file of tokens, and for examples: bytes, or the path of a tokenizer.json; empty, for "
            "examples: that of model.from.");
  data.choice("kind", &D::kind,
              {{"dataset", DataKind::dataset},
               {"synthetic", DataKind::synthetic},
               {"idx", DataKind::idx},
               {"cifar", DataKind::cifar},
               {"image-folder", DataKind::image_folder},
               {"synthetic-images", DataKind::synthetic_images},
               {"examples", DataKind::examples}},
              "dataset: tokens read from path; synthetic: a generated language; idx: images and labels as MNIST has "
              "them, read from path; cifar: the binary files of CIFAR-10 or CIFAR-100; image-folder: PNG, PPM or PGM "
              "files in a folder per class, below train and valid where path has those; synthetic-images: generated "
              "images, whose best accuracy is known; examples: "
              "JSON lines to fine-tune on, whose completions alone have a loss.");
  data.choice("template", &D::chat_template,
              {{"auto", ChatTemplate::automatic}, {"chatml", ChatTemplate::chatml}, {"llama3", ChatTemplate::llama3}},
              "examples: how messages become tokens; auto: by the tokenizer's special tokens.");
  data.boolean("pack", &D::pack,
               "examples: several share a row of train.context tokens, without seeing each other; else each has a row "
               "of its own, padded.");
  data.number("valid_share", &D::valid_share, between(0, 0.5),
              "examples: share of them to validate on, where there is no valid_path; 0: none.");
  data.integer("synthetic_vocab", &D::synthetic_vocab, from(2, 65536), "Vocabulary of the synthetic language.");
  data.integer("augment_shift", &D::augment_shift, from(0, 1024),
               "Images to train on are moved by up to this many pixels up or down and left or right, at random.");
  data.boolean("augment_mirror", &D::augment_mirror, "Every second image to train on, at random, is mirrored.");
  data.integer("synthetic_seed", &D::synthetic_seed, {.low = 0}, "Seed of the synthetic language or images.");
  data.integer("synthetic_classes", &D::synthetic_classes, from(2, 1024), "Classes of the synthetic images.");
  data.integer("synthetic_pixels", &D::synthetic_pixels, from(2, widest),
               "Values of a synthetic image, at least as many as classes; a square image where they make one.");
  data.integer("synthetic_channels", &D::synthetic_channels, from(1, 1024),
               "Channels of a synthetic image, which divide its pixels.");
  data.integer("synthetic_tile", &D::synthetic_tile, from(0, 1024),
               "Height and width of the tiles in which a synthetic image's pattern repeats, for a convnet to know it "
               "by; 0: it does not repeat.");
  data.number("synthetic_strength", &D::synthetic_strength, between(0, 1000),
              "How far a synthetic image's pattern stands out, in standard deviations of the noise.");
}

void add_train(std::vector<Key>& keys) {
  using T = TrainConfig;
  SectionKeys<T> train(keys, "train", &Config::train);
  train.integer("steps", &T::steps, from(1, many), "Optimizer steps.");
  train.integer("batch", &T::batch, from(1, 65536), "Sequences per micro-batch.");
  train.integer("accumulation", &T::accumulation, from(1, 65536), "Micro-batches per step (gradient accumulation).");
  train.integer("reduction_groups", &T::reduction_groups, from(0, 65536),
                "Groups of a step's micro-batches that ranks share out. Gradients are summed group by group in one "
                "order, so that any number of ranks that divides this gives the same bits; 0: as many as ranks.");
  train.choice("shard", &T::shard,
               {{"none", ShardMode::none},
                {"optimizer", ShardMode::optimizer},
                {"gradients", ShardMode::gradients},
                {"weights", ShardMode::weights}},
               "What each rank has of its own parameters alone (ZeRO 0 to 3): nothing; master weights and optimizer "
               "state; their gradients too; their codes too. It changes memory and what travels, no result; "
               "gradients and weights need a group for each micro-batch.");
  train.integer("context", &T::context, from(0, longest), "Tokens per sequence; 0: the model's context.");
  train.integer("seed", &T::seed, {.low = 0}, "Seed of initial weights, data order and stochastic rounding.");
  train.integer("eval_every", &T::eval_every, from(0, many), "Steps between validations; 0: only at the end.");
  train.integer("eval_batches", &T::eval_batches, from(1, many), "Micro-batches per validation.");
  train.integer("checkpoint_every", &T::checkpoint_every, from(0, many),
                "Steps between checkpoints; 0: only at the end.");
  train.integer("keep", &T::keep, from(1, many), "Checkpoints kept; older ones are deleted.");
  train.integer("log_every", &T::log_every, from(1, many), "Steps between lines of progress.");
  train.integer("sample_every", &T::sample_every, from(0, many), "Steps between samples of generated text; 0: never.");
  train.text("sample_prompt", &T::sample_prompt, "Prompt of these samples.");
  train.integer("statistics_every", &T::statistics_every, from(0, many),
                "Steps between full statistics of every GEMM operand; 0: never.");
  train.integer("shadow_every", &T::shadow_every, from(0, many),
                "Steps between shadow checks, which run a micro-batch in high precision too and compare "
                "the gradients; 0: never.");
  train.choice("device", &T::device,
               {{"auto", DeviceChoice::automatic}, {"cpu", DeviceChoice::cpu}, {"cuda", DeviceChoice::cuda}},
               "Where to train; auto: on a GPU where one can be used, else on the CPU.");
  train.choice("memory", &T::memory,
               {{"speed", Memory::speed}, {"balanced", Memory::balanced}, {"small", Memory::small}},
               "What is kept for the backward pass. speed: everything; balanced: columnwise codes are "
               "requantized where that is free; small: wherever possible, and the hidden matrices of "
               "MLPs are recomputed.");
  train.number("z_loss", &T::z_loss, {.low = 0, .high = 1},
               "Weight of log² of the softmax's denominator in the training loss (and in the training loss reported), "
               "which keeps logits from drifting; 1e-4 is usual, 0: none.");
  train.integer("threads", &T::threads, from(0, 4096), "CPU threads; 0: all cores.");
  train.integer("memory_limit_mb", &T::memory_limit_mb, from(0, many),
                "Refuse to start a run that needs more memory than this, in MiB; 0: what the machine has.");
}

void add_optim(std::vector<Key>& keys) {
  using O = OptimConfig;
  SectionKeys<O> optim(keys, "optim", &Config::optim);
  optim.choice("optimizer", &O::optimizer, {{"adamw", OptimizerKind::adamw}, {"muon", OptimizerKind::muon}},
               "What updates the weights; muon: the hidden matrices, those within blocks, while AdamW updates "
               "embeddings, head, norms and biases.");
  optim.number("learning_rate", &O::learning_rate, {.low = 0, .high = 1000, .low_end = RangeEnd::open},
               "Peak learning rate.");
  optim.number("unit_learning_rate", &O::unit_learning_rate, {.low = 0, .high = 1000, .low_end = RangeEnd::open},
               "Peak learning rate of unit-scaled models, in place of learning_rate.");
  optim.number("final_ratio", &O::final_ratio, between(0, 1), "Learning rate at the end, as a share of the peak.");
  optim.choice("schedule", &O::schedule,
               {{"constant", ScheduleShape::constant},
                {"cosine", ScheduleShape::cosine},
                {"linear", ScheduleShape::linear},
                {"wsd", ScheduleShape::wsd}},
               "Learning rate after the warm-up; wsd: warmup, stable, decay.");
  optim.number("warmup", &O::warmup, between(0, 1), "Share of the steps in which the learning rate rises to its peak.");
  optim.number("decay", &O::decay, between(0, 1), "wsd: share of the steps in which it falls.");
  optim.number("beta1", &O::beta1, from_to_below(0, 1), "AdamW: decay of the first moment.");
  optim.number("beta2", &O::beta2, from_to_below(0, 1), "AdamW: decay of the second moment.");
  optim.number("epsilon", &O::epsilon, {.low = 0, .high = 1, .low_end = RangeEnd::open},
               "AdamW: added to the root of the second moment.");
  optim.text("muon_matrices", &O::muon_matrices,
             "Muon: patterns of the hidden matrices that it updates, separated by commas; AdamW updates the others.");
  optim.number("muon_momentum", &O::muon_momentum, from_to_below(0, 1), "Muon: decay of the momentum.");
  optim.integer("muon_steps", &O::muon_steps, from(1, 20),
                "Muon: Newton–Schulz steps that orthogonalize an update; 5 bring its singular values near 1.");
  optim.number("weight_decay", &O::weight_decay, between(0, 1000),
               "Decay of matrices; norms and biases are never decayed.");
  optim.choice(
      "clip", &O::clip,
      {{"none", ClipMode::none},
       {"global-norm", ClipMode::global_norm},
       {"group-norm", ClipMode::group_norm},
       {"value", ClipMode::value}},
      "Gradient clipping: by the norm of all gradients, by the norm of each parameter's, or element by element.");
  optim.number("clip_limit", &O::clip_limit, any_above(0), "Largest norm or value that is not clipped.");
  optim.choice("master", &O::master, {{"f32", MasterWeights::f32}, {"bf16-stochastic", MasterWeights::bf16_stochastic}},
               "Format of the master weights: f32, or bf16 updated with stochastic rounding.");
  optim.choice("moments", &O::moments,
               {{"f32", MomentFormat::f32}, {"bf16", MomentFormat::bf16}, {"fp8", MomentFormat::fp8}},
               "Format of the moments: AdamW's two, Muon's momentum.");
  optim.number_table("learning_rate_of", &O::learning_rate_of, between(0, 1e6),
                     "Factors on the learning rate of the parameters whose names match a pattern, such as `blocks.*` "
                     "or `embed.weight`; 0 freezes them: no update, no optimizer state, no wgrad.");
  optim.number_table("weight_decay_of", &O::weight_decay_of, between(0, 1e6),
                     "Factors on the weight decay of the parameters whose names match a pattern.");
}

std::vector<std::string> recipe_names() {
  std::vector<std::string> names;
  for (const RecipeInfo& recipe : recipes()) names.emplace_back(recipe.name);
  return names;
}

void add_recipe(SectionKeys<PrecisionConfig>& precision) {
  using P = PrecisionConfig;
  precision.recipe("recipe", &P::recipe, recipe_names(), "Formats and scaling of the GEMM operands.");
  precision.recipe_of(
      "layers", &P::layers, recipe_names(),
      "Recipes of the layers whose names match a pattern, such as `blocks.*.mlp.down` or `blocks.0.*/dy`.");
  precision.text("only_where_faster", &P::only_where_faster,
                 "File of `quaver bench --json` of this machine: layers that the recipe, casts included, does not make "
                 "faster than bf16 stay in bf16. A pattern of `layers` wins over it.");
  precision.number_table("layer_speeds", &P::layer_speeds, between(0, 1e6),
                         "What only_where_faster found, which a resumed run follows without the file: speed over bf16, "
                         "such as `\"blocks.*.mlp.up in fp8-delayed\" = 0.93`.");
  precision.integer("history", &P::history, from(1, 1024), "Delayed scaling: length of the amax history, in steps.");
  precision.choice("history_rule", &P::history_rule,
                   {{"max", HistoryRule::max}, {"most-recent", HistoryRule::most_recent}},
                   "Delayed scaling: use the largest amax of the history, or the most recent.");
  precision.integer("margin", &P::margin, from(0, 16), "FP32 scales leave 2^margin of headroom.");
  precision.boolean("power_of_two_scales", &P::power_of_two_scales, "Round scales down to powers of two.");
  precision.boolean("mx_floor", &P::mx_floor, "MX: the OCP floor rule instead of rounding the scale's exponent up.");
  precision.boolean("wide_weight_gradient", &P::wide_weight_gradient, "fp8-row: wgrad in bf16.");
  precision.choice("gradient_format", &P::gradient_format,
                   {{"recipe", GradientFormat::recipe}, {"e4m3", GradientFormat::e4m3}, {"e5m2", GradientFormat::e5m2}},
                   "8-bit format of gradients; recipe: the recipe's own.");
  precision.number("wide_start", &P::wide_start, between(-1, 1),
                   "Share of the first blocks kept in bf16; -1: the recipe's own (0 in all that are built in).");
  precision.number("wide_tail", &P::wide_tail, between(-1, 1),
                   "Share of the last blocks kept in bf16; -1: the recipe's own (nvfp4: 0.15).");
  std::vector<std::string> none_or_recipe = recipe_names();
  none_or_recipe.insert(none_or_recipe.begin(), "");
  precision.recipe("switch_to", &P::switch_to, none_or_recipe, "Recipe for the last part of the run; empty: none.");
  precision.number("switch_at", &P::switch_at, between(0, 1), "Share of the steps after which switch_to applies.");
}

void add_scales(SectionKeys<PrecisionConfig>& precision) {
  using P = PrecisionConfig;
  precision.choice("accumulator", &P::accumulator,
                   {{"auto", AccumulatorChoice::automatic},
                    {"fp32", AccumulatorChoice::fp32},
                    {"hopper", AccumulatorChoice::hopper},
                    {"hopper-split", AccumulatorChoice::hopper_split},
                    {"fp16", AccumulatorChoice::fp16},
                    {"fp8", AccumulatorChoice::fp8}},
                   "Accumulation of GEMMs. auto: fp32 on a CPU; on a GPU fast accumulation of FP8 (hopper), "
                   "except wgrad and the head's dgrad, whose sums are promoted to FP32 (fp32). On a CPU all "
                   "but fp32 are models of hardware with fewer bits, and slow.");
  precision.text("scales", &P::scales, "File of scales, for fp8-static and for warm starts of fp8-delayed.");
  precision.text(
      "localization", &P::localization,
      "The sensitivity analysis that `layers` came from, as `quaver localize` writes it; shown on the dashboard.");
  precision.number("static_activation_scale", &P::static_activation_scale, scale,
                   "fp8-static without a file: scale of activations.");
  precision.number("static_weight_scale", &P::static_weight_scale, scale,
                   "fp8-static without a file: scale of weights.");
  precision.number("static_gradient_scale", &P::static_gradient_scale, scale,
                   "fp8-static without a file: scale of gradients.");
  precision.integer(
      "recalibrate_every", &P::recalibrate_every, {0, 1000000000},
      "Fit static scales anew to the amax of the last `history` steps after so many steps, and for a site "
      "whose scale no longer fits according to an alert or the guard; changes are logged in the scale "
      "book and can be taken back. 0: never.");
  precision.choice("loss_scaling", &P::loss_scaling,
                   {{"auto", LossScaling::automatic},
                    {"off", LossScaling::off},
                    {"fixed", LossScaling::fixed},
                    {"adaptive", LossScaling::adaptive}},
                   "Loss scale before the backward pass; auto: adaptive for fp16, else off.");
  precision.integer("loss_scale_log2", &P::loss_scale_log2, from(0, 32),
                    "The fixed loss scale, or the initial one, as a power of two.");
  precision.integer("loss_scale_window", &P::loss_scale_window, from(1, 1'000'000),
                    "Steps without overflow before an adaptive loss scale doubles.");
}

void add_guard(std::vector<Key>& keys) {
  using G = GuardConfig;
  SectionKeys<G> guard(keys, "guard", &Config::guard);
  guard.boolean("enabled", &G::enabled, "Watch for overflow and divergence, and act on them.");
  guard.integer("widen_after", &G::widen_after, from(1, 1'000'000),
                "Consecutive overflowing steps of a site before it moves to bf16.");
  guard.number("overflow_percent", &G::overflow_percent, between(0, 100),
               "Saturated elements, in percent, that count as an overflow of a site.");
  guard.number("divergence", &G::divergence, any_above(1),
               "A loss this many times its running mean counts as divergence.");
  guard.integer("patience", &G::patience, from(1, 1'000'000), "Steps that a divergence lasts before the run rewinds.");
  guard.integer("max_rewinds", &G::max_rewinds, from(0, 1000),
                "Rewinds to an earlier checkpoint before the run gives up.");
  guard.boolean("act_on_alerts", &G::act_on_alerts,
                "Apply an alert's remedy: bf16 for the site, E5M2 for its gradient, or a reset of its "
                "amax history. Logged in the scale book.");
}

void add_alert_waiting(SectionKeys<AlertConfig>& alerts) {
  using A = AlertConfig;
  constexpr IntegerRange count = from(1, 1'000'000);
  alerts.boolean("enabled", &A::enabled, "Raise alerts.");
  alerts.integer("samples", &A::samples, count, "Consecutive bad samples that raise an alert on samples.");
  alerts.integer("clear_samples", &A::clear_samples, count, "Consecutive healthy samples that clear it.");
  alerts.integer("steps", &A::steps, count, "Consecutive bad steps that raise an alert on steps.");
  alerts.integer("clear_steps", &A::clear_steps, count, "Consecutive healthy steps that clear it.");
  alerts.integer("settling_steps", &A::settling_steps, count,
                 "Steps before loss and gradient norm are compared with their running means.");
  alerts.integer("baseline_samples", &A::baseline_samples, count, "First samples of a site that make up its baseline.");
}

void add_alert_thresholds(SectionKeys<AlertConfig>& alerts) {
  using A = AlertConfig;
  constexpr NumberRange percent = between(0, 100);
  alerts.number("underflow_x", &A::underflow_x, percent, "Percent of an activation that underflows.");
  alerts.number("underflow_w", &A::underflow_w, percent, "Percent of a weight that underflows.");
  alerts.number("underflow_dy", &A::underflow_dy, percent, "Percent of a gradient that underflows.");
  alerts.number("underflow_4bit", &A::underflow_4bit, percent, "The same for 4-bit sites.");
  alerts.number("harmless_sqnr", &A::harmless_sqnr, at_least(0),
                "SQNR in dB at and above which underflow is harmless.");
  alerts.number("sqnr_deficit", &A::sqnr_deficit, any_above(0),
                "SQNR in dB below what the format gives a site's tensor at its best scale.");
  alerts.number("saturated", &A::saturated, percent, "Percent of a site that saturates.");
  alerts.integer("frozen_steps", &A::frozen_steps, from(1, 1'000'000),
                 "Steps for which a delayed scale did not change although its tensor did.");
  alerts.number("frozen_factor", &A::frozen_factor, any_above(1),
                "Factor by which the tensor's amax must have changed since.");
  alerts.number("stale_above", &A::stale_above, any_above(1),
                "amax · scale above the format's largest value by this factor.");
  alerts.number("stale_binades", &A::stale_binades, at_least(0),
                "Binades that amax · scale keeps above the format's smallest normal value.");
  alerts.number("loss_deviations", &A::loss_deviations, any_above(0),
                "Standard deviations above the running mean that are a spike.");
  alerts.number("gradient_deviations", &A::gradient_deviations, any_above(0),
                "The same for the logarithm of the gradient norm.");
  alerts.number("max_logit", &A::max_logit, any_above(0), "Largest attention logit.");
  alerts.integer("skipped_steps", &A::skipped_steps, from(1, 1'000'000), "Consecutive skipped steps.");
  alerts.number("weight_jump", &A::weight_jump, any_above(1),
                "Factor by which a weight's amax grows from one sample to the next.");
  alerts.number("unmoved", &A::unmoved, percent, "Percent of a weight that an update did not change.");
  alerts.number("collapse", &A::collapse, between(0, 1), "Share of its baseline RMS to which an embedding shrinks.");
  alerts.number("growth", &A::growth, any_above(1), "Factor over its baseline by which a site's activations grow.");
  alerts.number("shadow_cosine", &A::shadow_cosine, between(-1, 1),
                "Cosine of a layer's gradient with that of high precision, 8-bit layers.");
  alerts.number("shadow_cosine_4bit", &A::shadow_cosine_4bit, between(-1, 1), "The same for 4-bit layers.");
  alerts.number("snr_fall", &A::snr_fall, any_above(1), "Factor by which a gradient's SNR falls below its baseline.");
}

void add_run(std::vector<Key>& keys) {
  SectionKeys<RunConfig> run(keys, "run", &Config::run);
  run.text("dir", &RunConfig::dir, "Where the run is written; empty: `runs/<name>`.");
  run.text("name", &RunConfig::name, "Name of the run, a single name within `runs`; empty: model, recipe and seed.");
  run.text(
      "store", &RunConfig::store,
      "Store that records the run, for the dashboard; empty: `quaver.db` beside the run's folder; none: no store.");
  run.text("fallback", &RunConfig::fallback,
           "Folder for the last checkpoint where the run's own cannot be written; empty: a private one in the "
           "system's temporary folder.");
  run.integer("patience", &RunConfig::patience, from(0, many),
              "Seconds for which a run that cannot write its last checkpoint anywhere keeps trying.");
}

}  // namespace

std::vector<Key> make_keys() {
  std::vector<Key> keys;
  add_preset(keys);
  add_recipes(keys);
  SectionKeys<ModelConfig> model(keys, "model", &Config::model);
  add_model_shape(model);
  add_model_scaling(model);
  add_lora(keys);
  add_data(keys);
  add_train(keys);
  add_optim(keys);
  SectionKeys<PrecisionConfig> precision(keys, "precision", &Config::precision);
  add_recipe(precision);
  add_scales(precision);
  add_guard(keys);
  SectionKeys<AlertConfig> alerts(keys, "alerts", &Config::alerts);
  add_alert_waiting(alerts);
  add_alert_thresholds(alerts);
  add_run(keys);
  return keys;
}

}  // namespace quaver
