#include "train/batch_source.h"

#include <algorithm>

namespace quaver {

namespace {

Batch filled(const TokenSource& source, std::uint64_t index, const BatchShape& shape, BatchStorage& storage) {
  const auto tokens = static_cast<std::size_t>(shape.batch * shape.sequence);
  storage.inputs.resize(tokens);
  storage.targets.resize(tokens);
  source.fill(index, shape.batch, shape.sequence, storage.inputs.data(), storage.targets.data());
  return TokenBatch{storage.inputs, storage.targets};
}

}  // namespace

void TokenBatches::start(const BatchOrder& order, const BatchShape& shape) {
  loader_.reset();
  loader_ = std::make_unique<PrefetchLoader>(*data_.train, order, shape.batch, shape.sequence);
}

Batch TokenBatches::next() {
  const PrefetchLoader::Batch batch = loader_->next();
  return TokenBatch{batch.inputs, batch.targets};
}

Batch TokenBatches::training_batch(std::uint64_t index, const BatchShape& shape, BatchStorage& storage) const {
  return filled(*data_.train, index, shape, storage);
}

Size TokenBatches::validation_batches(Size most, const BatchShape& shape) const {
  if (data_.valid == nullptr) return 0;
  const auto windows = static_cast<Size>(data_.valid->windows(shape.sequence));
  return windows > 0 ? std::min(most, (windows + shape.batch - 1) / shape.batch) : most;
}

Batch TokenBatches::validation_batch(std::uint64_t index, const BatchShape& shape, BatchStorage& storage) const {
  return filled(*data_.valid, index, shape, storage);
}

}  // namespace quaver
