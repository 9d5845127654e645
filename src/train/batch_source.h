// Where a trainer's batches come from. A batch is a function of its index, so a run resumes by remembering one number.
#pragma once

#include <memory>

#include "models/model.h"
#include "train/training_data.h"

namespace quaver {

struct BatchShape {
  Size batch = 0;
  Size sequence = 1;
};

class BatchSource {
 public:
  virtual ~BatchSource() = default;

  // Training batches in an order: next() gives the first of them, then those that follow. A batch is valid until the
  // call after.
  virtual void start(const BatchOrder& order, const BatchShape& shape) = 0;
  virtual Batch next() = 0;

  // How many rows of a training batch have a loss. All ranks ask for those of a whole step.
  virtual Size training_rows_with_loss(std::uint64_t index, const BatchShape& shape) const;

  // Any training batch; the order of next() stays as it is. Valid as long as the storage is.
  virtual Batch training_batch(std::uint64_t index, const BatchShape& shape, BatchStorage& storage) const = 0;

  // Batches to validate with: of `most`, as many as there are; 0 where there is nothing to validate with.
  virtual Size validation_batches(Size most, const BatchShape& shape) const = 0;
  virtual Batch validation_batch(std::uint64_t index, const BatchShape& shape, BatchStorage& storage) const = 0;
};

// Batches of token sequences, those of training prefetched. The data must outlive it.
class TokenBatches final : public BatchSource {
 public:
  explicit TokenBatches(const TrainingData& data) : data_(data) {}

  void start(const BatchOrder& order, const BatchShape& shape) override;
  Batch next() override;
  Size training_rows_with_loss(std::uint64_t index, const BatchShape& shape) const override;
  Batch training_batch(std::uint64_t index, const BatchShape& shape, BatchStorage& storage) const override;
  Size validation_batches(Size most, const BatchShape& shape) const override;
  Batch validation_batch(std::uint64_t index, const BatchShape& shape, BatchStorage& storage) const override;

 private:
  const TrainingData& data_;
  std::unique_ptr<PrefetchLoader> loader_;
};

// Batches of images, those of training prefetched. The data must outlive it.
class ImageBatches final : public BatchSource {
 public:
  explicit ImageBatches(const TrainingData& data) : data_(data) {}

  void start(const BatchOrder& order, const BatchShape& shape) override;
  Size training_rows_with_loss(std::uint64_t, const BatchShape& shape) const override { return shape.batch; }
  Batch next() override;
  Batch training_batch(std::uint64_t index, const BatchShape& shape, BatchStorage& storage) const override;
  Size validation_batches(Size most, const BatchShape& shape) const override;
  Batch validation_batch(std::uint64_t index, const BatchShape& shape, BatchStorage& storage) const override;

 private:
  const TrainingData& data_;
  std::unique_ptr<Prefetcher<BatchStorage>> loader_;
};

std::unique_ptr<BatchSource> make_batches(const TrainingData& data);

// The batch's rows that have a target.
Size rows_with_loss(const Batch& batch);

}  // namespace quaver
