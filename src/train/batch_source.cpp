#include "train/batch_source.h"

#include <algorithm>

namespace quaver {

namespace {

Batch filled(const TokenSource& source, std::uint64_t index, const BatchShape& shape, BatchStorage& storage) {
  const auto tokens = static_cast<std::size_t>(shape.batch * shape.sequence);
  storage.inputs.resize(tokens);
  storage.targets.resize(tokens);
  source.fill(index, shape.batch, shape.sequence, storage.inputs.data(), storage.targets.data());
  storage.document_starts.resize(source.packs_documents() ? tokens : 0);
  source.fill_document_starts(index, shape.batch, shape.sequence, storage.document_starts.data());
  return TokenBatch{storage.inputs, storage.targets, storage.document_starts};
}

Batch filled(const ImageSource& source, std::uint64_t index, const BatchShape& shape, BatchStorage& storage) {
  storage.features.resize(static_cast<std::size_t>(shape.batch * source.pixels()));
  storage.targets.resize(static_cast<std::size_t>(shape.batch));
  source.fill(index, shape.batch, storage.features.data(), storage.targets.data());
  return FeatureBatch{storage.features, storage.targets};
}

// Of `most`, as many as hold all rows; none of endless data counts.
Size batches_of(std::uint64_t rows, Size most, Size batch) {
  return rows > 0 ? std::min(most, (static_cast<Size>(rows) + batch - 1) / batch) : most;
}

}  // namespace

Size BatchSource::training_rows_with_loss(std::uint64_t index, const BatchShape& shape) const {
  BatchStorage storage;
  return rows_with_loss(training_batch(index, shape, storage));
}

void TokenBatches::start(const BatchOrder& order, const BatchShape& shape) {
  loader_.reset();
  loader_ = std::make_unique<PrefetchLoader>(*data_.train, order, shape.batch, shape.sequence);
}

Batch TokenBatches::next() {
  const PrefetchLoader::Batch batch = loader_->next();
  return TokenBatch{batch.inputs, batch.targets, batch.document_starts};
}

Size TokenBatches::training_rows_with_loss(std::uint64_t index, const BatchShape& shape) const {
  return data_.train->targets_with_loss(index, shape.batch, shape.sequence);
}

Batch TokenBatches::training_batch(std::uint64_t index, const BatchShape& shape, BatchStorage& storage) const {
  return filled(*data_.train, index, shape, storage);
}

Size TokenBatches::validation_batches(Size most, const BatchShape& shape) const {
  if (data_.valid == nullptr) return 0;
  return batches_of(data_.valid->windows(shape.sequence), most, shape.batch);
}

Batch TokenBatches::validation_batch(std::uint64_t index, const BatchShape& shape, BatchStorage& storage) const {
  return filled(*data_.valid, index, shape, storage);
}

void ImageBatches::start(const BatchOrder& order, const BatchShape& shape) {
  constexpr std::size_t ahead = 2;
  loader_.reset();
  loader_ = std::make_unique<Prefetcher<BatchStorage>>(
      [&source = *data_.train_images, order, shape](std::uint64_t number, BatchStorage& storage) {
        filled(source, order.index(number), shape, storage);
      },
      ahead);
}

Batch ImageBatches::next() {
  const BatchStorage& storage = loader_->next().batch;
  return FeatureBatch{storage.features, storage.targets};
}

Batch ImageBatches::training_batch(std::uint64_t index, const BatchShape& shape, BatchStorage& storage) const {
  return filled(*data_.train_images, index, shape, storage);
}

Size ImageBatches::validation_batches(Size most, const BatchShape& shape) const {
  return data_.valid_images != nullptr ? batches_of(data_.valid_images->images(), most, shape.batch) : 0;
}

Batch ImageBatches::validation_batch(std::uint64_t index, const BatchShape& shape, BatchStorage& storage) const {
  return filled(*data_.valid_images, index, shape, storage);
}

std::unique_ptr<BatchSource> make_batches(const TrainingData& data) {
  if (data.train_images != nullptr) return std::make_unique<ImageBatches>(data);
  return std::make_unique<TokenBatches>(data);
}

Size rows_with_loss(const Batch& batch) {
  const auto* rows = std::get_if<FeatureBatch>(&batch);
  const auto targets = rows != nullptr ? rows->classes : std::get<TokenBatch>(batch).targets;
  return std::count_if(targets.begin(), targets.end(), [](std::int32_t target) { return target >= 0; });
}

}  // namespace quaver
