// Training data that can be memorized: the first batch of another source, again and again. A few steps on it tell
// whether a recipe learns at all, which random tokens alone do not.
#pragma once

#include <memory>

#include "config/config.h"
#include "data/image_source.h"
#include "data/loader.h"

namespace quaver {

// The share of bf16's fall that a recipe must reach, and the least fall of bf16 that tells anything.
inline constexpr double least_share_of_fall = 0.8;
inline constexpr double least_memorized_fall = 0.005;

// Steps of one micro-batch at a tenth of the config's peak rate: at the peak without a warm-up the loss of large models
// leaps, and where it lands after a few steps tells recipes apart by chance.
inline Config for_memorizing(Config config) {
  constexpr double rate_share = 0.1;
  config.train.make_single();
  config.optim.schedule = ScheduleShape::constant;
  config.optim.warmup = 0;
  config.optim.learning_rate *= rate_share;
  config.optim.unit_learning_rate *= rate_share;
  return config;
}

class RepeatedBatch final : public TokenSource {
 public:
  explicit RepeatedBatch(std::unique_ptr<TokenSource> source) : source_(std::move(source)) {}

  void fill(std::uint64_t, std::int64_t batch, std::int64_t context, std::int32_t* inputs,
            std::int32_t* targets) const override {
    source_->fill(0, batch, context, inputs, targets);
  }
  int vocab_size() const override { return source_->vocab_size(); }
  std::uint64_t tokens() const override { return source_->tokens(); }
  std::uint64_t windows(std::int64_t context) const override { return source_->windows(context); }
  std::string describe() const override { return source_->describe(); }
  std::uint64_t content_hash() const override { return source_->content_hash(); }

 private:
  std::unique_ptr<TokenSource> source_;
};

class RepeatedImages final : public ImageSource {
 public:
  explicit RepeatedImages(std::unique_ptr<ImageSource> source) : source_(std::move(source)) {}

  void fill(std::uint64_t, std::int64_t batch, float* images, std::int32_t* labels) const override {
    source_->fill(0, batch, images, labels);
  }
  ImageShape shape() const override { return source_->shape(); }
  int classes() const override { return source_->classes(); }
  std::uint64_t images() const override { return source_->images(); }
  std::uint64_t content_hash() const override { return source_->content_hash(); }

 private:
  std::unique_ptr<ImageSource> source_;
};

}  // namespace quaver
