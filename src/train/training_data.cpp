#include "train/training_data.h"

#include <filesystem>
#include <fmt/format.h>

#include "data/augmented_images.h"
#include "data/cifar_images.h"
#include "data/dataset.h"
#include "data/example_source.h"
#include "data/folder_images.h"
#include "data/idx_images.h"
#include "data/random_tokens.h"
#include "data/synthetic.h"
#include "data/synthetic_images.h"
#include "quaver/error.h"

namespace quaver {

namespace {

TrainingData open_synthetic(const DataConfig& config, Size context) {
  SyntheticOptions options{.kind = SyntheticKind::skip_markov,
                           .vocab_size = static_cast<int>(config.synthetic_vocab),
                           .seed = config.synthetic_seed,
                           .stream = 0};
  TrainingData data;
  auto train = std::make_unique<SyntheticSource>(options);
  data.vocab = train->vocab_size();
  data.best_loss = train->best_loss(context);
  data.train = std::move(train);
  options.stream = 1;
  data.valid = std::make_unique<SyntheticSource>(options);
  data.identity = identity_of(*data.train, data.valid.get(), 0, data.vocab);
  return data;
}

// Those of training, which the run's seed shuffles and augments, and those of validation, which are normalized as they
// are.
ImageOptions training_images(std::uint64_t seed) { return {.order = ImageOrder::shuffled, .seed = seed}; }
ImageOptions validation_images(const ByteImages& train) {
  return {.order = ImageOrder::once, .normalization = train.normalization(), .classes = train.classes()};
}

TrainingData with_images(const DataConfig& config, std::unique_ptr<ImageSource> train,
                         std::unique_ptr<ImageSource> valid, std::uint64_t seed) {
  TrainingData data;
  data.identity = identity_of(*train, valid.get());
  const Augmentation augmentation{
      .shift = config.augment_shift, .mirror = config.augment_mirror ? Mirror::half : Mirror::never, .seed = seed};
  if (augmentation.changes_images()) train = std::make_unique<AugmentedImages>(std::move(train), augmentation);
  data.train_images = std::move(train);
  data.valid_images = std::move(valid);
  return data;
}

TrainingData open_synthetic_images(const DataConfig& config, std::uint64_t seed) {
  SyntheticImagesOptions options{.classes = static_cast<int>(config.synthetic_classes),
                                 .pixels = config.synthetic_pixels,
                                 .channels = config.synthetic_channels,
                                 .tile = config.synthetic_tile,
                                 .strength = config.synthetic_strength,
                                 .seed = config.synthetic_seed,
                                 .stream = 0};
  auto train = std::make_unique<SyntheticImages>(options);
  const double best_loss = train->best_loss();
  const double best_accuracy = train->best_accuracy();
  options.stream = 1;
  TrainingData data = with_images(config, std::move(train), std::make_unique<SyntheticImages>(options), seed);
  data.best_loss = best_loss;
  data.best_accuracy = best_accuracy;
  return data;
}

TrainingData open_cifar(const DataConfig& config, std::uint64_t seed) {
  const CifarFiles files = find_cifar_files(config.path);
  auto train = std::make_unique<CifarImages>(files.train, files.label_bytes, training_images(seed));
  std::unique_ptr<ImageSource> valid;
  if (!files.valid.empty()) {
    valid = std::make_unique<CifarImages>(files.valid, files.label_bytes, validation_images(*train));
  }
  return with_images(config, std::move(train), std::move(valid), seed);
}

TrainingData open_image_folders(const DataConfig& config, std::uint64_t seed) {
  const ImageFolders folders = find_image_folders(config.path);
  auto train = std::make_unique<FolderImages>(folders.train, training_images(seed));
  std::unique_ptr<ImageSource> valid;
  if (folders.valid) valid = std::make_unique<FolderImages>(*folders.valid, validation_images(*train), train.get());
  return with_images(config, std::move(train), std::move(valid), seed);
}

std::string extents_of(const ImageShape& shape) {
  return fmt::format("{} × {} × {} values", shape.height, shape.width, shape.channels);
}

TrainingData open_idx(const DataConfig& config, std::uint64_t seed) {
  const IdxFolder files = find_idx_files(config.path);
  auto train = std::make_unique<IdxImages>(files.train, training_images(seed));
  std::unique_ptr<ImageSource> valid;
  if (files.valid) {
    valid = std::make_unique<IdxImages>(*files.valid, validation_images(*train));
    if (valid->shape() != train->shape()) {
      throw Error(fmt::format("{} has images of {}, and {} of {}", files.valid->images.string(),
                              extents_of(valid->shape()), files.train.images.string(), extents_of(train->shape())),
                  "use validation images of the size of the training images");
    }
  }
  return with_images(config, std::move(train), std::move(valid), seed);
}

std::unique_ptr<ShardSource> shards(const std::vector<std::filesystem::path>& paths, WindowOrder order,
                                    std::uint64_t seed, int vocab) {
  return std::make_unique<ShardSource>(paths, ShardSourceOptions{.order = order, .seed = seed, .vocab_size = vocab});
}

void check_length(const TokenSource* source, const char* what, Size context) {
  if (source == nullptr || source->tokens() == 0 || source->windows(context) > 0) return;
  throw Error(fmt::format("the {} data has {} tokens: not one sequence of {}", what, source->tokens(), context),
              "use more text, or a smaller train.context");
}

// A shard of another tokenizer with the same vocabulary would be read without complaint, as other text.
void check_tokenizer(const TokenSource* source, const Tokenizer* tokenizer) {
  if (source == nullptr || tokenizer == nullptr) return;
  for (const Shard& shard : source->shards()) {
    const std::uint64_t recorded = shard.info().tokenizer_hash;
    if (recorded == 0 || recorded == tokenizer->hash()) continue;
    throw Error(fmt::format("shard {} was made with tokenizer {:016x}, not with {} ({:016x})", shard.path().string(),
                            recorded, tokenizer->name(), tokenizer->hash()),
                "use the tokenizer that the shard was made with, or prepare the text again");
  }
}

// Lengths before the identity, which may have to read everything.
void check_and_identify(TrainingData& data, std::uint64_t tokenizer_hash, Size context) {
  check_tokenizer(data.train.get(), data.tokenizer.get());
  check_tokenizer(data.valid.get(), data.tokenizer.get());
  check_length(data.train.get(), "training", context);
  check_length(data.valid.get(), "validation", context);
  data.identity = identity_of(*data.train, data.valid.get(), tokenizer_hash, data.vocab);
}

TrainingData open_shard_file(const DataConfig& config, std::uint64_t seed, Size context) {
  TrainingData data;
  if (!config.tokenizer.empty()) data.tokenizer = load_tokenizer(config.tokenizer);
  const int vocab = data.tokenizer != nullptr ? data.tokenizer->vocab_size() : 0;
  auto train = shards({config.path}, WindowOrder::shuffled, seed, vocab);
  const std::uint64_t recorded = train->shards().front().info().tokenizer_hash;
  data.train = std::move(train);
  if (!config.valid_path.empty()) data.valid = shards({config.valid_path}, WindowOrder::sequential, seed, vocab);
  data.vocab = data.train->vocab_size();
  check_and_identify(data, data.tokenizer != nullptr ? data.tokenizer->hash() : recorded, context);
  return data;
}

TrainingData open_prepared(const DataConfig& config, std::uint64_t seed, Size context) {
  const Dataset dataset = open_dataset(config.path);
  TrainingData data;
  data.tokenizer = dataset.tokenizer;
  data.vocab = dataset.vocab_size;
  data.train = shards(dataset.train, WindowOrder::shuffled, seed, data.vocab);
  if (!config.valid_path.empty()) {
    data.valid = shards({config.valid_path}, WindowOrder::sequential, seed, data.vocab);
  } else if (!dataset.valid.empty()) {
    data.valid = shards(dataset.valid, WindowOrder::sequential, seed, data.vocab);
  }
  check_and_identify(data, data.tokenizer->hash(), context);
  return data;
}

// Rows and what was lost of them, said once for both parts of the data.
std::unique_ptr<ExampleSource> examples_of(Examples examples, const char* what, const ExampleSourceOptions& options,
                                           std::vector<std::string>& notes) {
  const std::size_t count = examples.count();
  auto source = std::make_unique<ExampleSource>(std::move(examples), options);
  if (source->cut() > 0) {
    notes.push_back(fmt::format("{} of {} {} examples are longer than train.context = {} and were cut", source->cut(),
                                count, what, options.context));
  }
  if (source->left_out() > 0) {
    notes.push_back(fmt::format("{} of {} {} examples are left out: nothing with a loss is within train.context = {}",
                                source->left_out(), count, what, options.context));
  }
  return source;
}

TrainingData open_examples(const DataConfig& config, std::uint64_t seed, Size context) {
  if (config.tokenizer.empty()) {
    throw Error("examples need a tokenizer",
                "set data.tokenizer to a tokenizer.json, or model.from to a model's folder");
  }
  TrainingData data;
  data.tokenizer = load_tokenizer(config.tokenizer);
  data.vocab = data.tokenizer->vocab_size();
  const auto read = [&](const std::string& path) { return read_examples(path, *data.tokenizer, config.chat_template); };
  Examples train = read(config.path);
  std::optional<Examples> valid;
  if (!config.valid_path.empty()) {
    valid = read(config.valid_path);
  } else if (config.valid_share > 0) {
    auto parts = split_examples(train, config.valid_share);
    train = std::move(parts.first);
    valid = std::move(parts.second);
  }
  ExampleSourceOptions options{.context = context,
                               .layout = config.pack ? RowLayout::packed : RowLayout::one_example,
                               .seed = seed,
                               .vocab_size = data.vocab};
  data.train = examples_of(std::move(train), "training", options, data.notes);
  options.order = WindowOrder::sequential;
  if (valid) data.valid = examples_of(std::move(*valid), "validation", options, data.notes);
  data.identity = identity_of(*data.train, data.valid.get(), data.tokenizer->hash(), data.vocab);
  return data;
}

}  // namespace

TrainingData open_training_data(const DataConfig& config, std::uint64_t seed, Size context) {
  if (config.kind == DataKind::synthetic) return open_synthetic(config, context);
  if (config.kind == DataKind::synthetic_images) return open_synthetic_images(config, seed);
  if (config.path.empty()) {
    throw Error("no data to train on",
                has_images(config.kind)
                    ? "set data.path to the folder of the images, or data.kind = \"synthetic-images\""
                : config.kind == DataKind::examples
                    ? "set data.path to a file of JSON lines, one example per line"
                    : "set data.path to a folder that `quaver data` wrote, or data.kind = \"synthetic\"");
  }
  if (config.kind == DataKind::idx) return open_idx(config, seed);
  if (config.kind == DataKind::cifar) return open_cifar(config, seed);
  if (config.kind == DataKind::image_folder) return open_image_folders(config, seed);
  if (config.kind == DataKind::examples) return open_examples(config, seed, context);
  return std::filesystem::is_directory(config.path) ? open_prepared(config, seed, context)
                                                    : open_shard_file(config, seed, context);
}

DataShape TrainingData::shape() const {
  if (train_images == nullptr) return {.vocab = vocab};
  const ImageShape image = train_images->shape();
  return {.features = image.pixels(),
          .classes = train_images->classes(),
          .height = image.height,
          .width = image.width,
          .channels = image.channels};
}

TrainingData stand_in_data(const Config& config, Size vocab) {
  if (has_images(config.data.kind)) return open_training_data(config.data, config.train.seed, 1);
  TrainingData data;
  data.vocab = static_cast<int>(config.model.vocab > 0 ? config.model.vocab : vocab);
  data.train = std::make_unique<RandomTokens>(data.vocab, config.train.seed);
  return data;
}

}  // namespace quaver
