#include "train/gradient_exchange.h"

#include <algorithm>

namespace quaver {

namespace {

constexpr Size bucket_limit = Size{1} << 24;  // elements: 64 MiB

// One group alone is its own sum.
bool has_sums(int ranks, Size rounds) { return ranks > 1 || rounds > 1; }

Size bucket_elements(int ranks) {
  const Size granule = GradientExchange::granule(ranks);
  return std::max(granule, bucket_limit / granule * granule);
}

Size received_elements(Size elements, int ranks) { return ranks > 1 ? std::min(elements, bucket_elements(ranks)) : 0; }

}  // namespace

Size GradientExchange::planned_bytes(Size elements, int ranks, Size rounds) {
  if (!has_sums(ranks, rounds)) return 0;
  return 4 * (elements / ranks + received_elements(elements, ranks));
}

GradientExchange::GradientExchange(Engine& engine, Communicator& ranks, const Parameters& parameters, Size rounds)
    : engine_(engine), ranks_(ranks), gradients_(parameters.gradients()) {
  if (!has_sums(ranks.size(), rounds)) return;
  const Size elements = gradients_.count();
  memory_ = engine.device().allocate(static_cast<std::size_t>(planned_bytes(elements, ranks.size(), rounds)));
  auto* next = reinterpret_cast<float*>(memory_.get());
  for (Size first = 0; first < elements; first += bucket_elements(ranks.size())) {
    const Size share = std::min(bucket_elements(ranks.size()), elements - first) / ranks.size();
    buckets_.push_back({first, share, next});
    next += share;
  }
  received_ = next;
}

// The rank's own share of every rank's gradient, in the order of the ranks.
View GradientExchange::parts_of(const Bucket& bucket) const {
  if (ranks_.is_alone()) return {share_of(bucket, 0), Format::f32, 1, bucket.share};
  std::vector<Message> sent;
  std::vector<Message> received;
  const auto bytes = static_cast<std::size_t>(bucket.share) * sizeof(float);
  for (int i = 1; i < ranks_.size(); ++i) {
    const int to = (ranks_.rank() + i) % ranks_.size();
    const int from = (ranks_.rank() + ranks_.size() - i) % ranks_.size();
    sent.push_back({to, share_of(bucket, to), bytes});
    received.push_back({from, received_ + from * bucket.share, bytes});
  }
  const View own{share_of(bucket, ranks_.rank()), Format::f32, 1, bucket.share};
  engine_.run(SumInOrder{own, {received_ + ranks_.rank() * bucket.share, Format::f32, 1, bucket.share}});
  ranks_.exchange(sent, received);
  return {received_, Format::f32, ranks_.size(), bucket.share};
}

void GradientExchange::add(Size round) {
  for (const Bucket& bucket : buckets_) {
    const View sum{bucket.sum, Format::f32, 1, bucket.share};
    engine_.run(SumInOrder{.parts = parts_of(bucket), .sum = sum, .accumulate = round > 0});
  }
}

void GradientExchange::finish() {
  for (const Bucket& bucket : buckets_) {
    const View sum{bucket.sum, Format::f32, 1, bucket.share};
    engine_.run(SumInOrder{.parts = sum, .sum = {share_of(bucket, ranks_.rank()), Format::f32, 1, bucket.share}});
    ranks_.all_gather(share_of(bucket, 0), static_cast<std::size_t>(bucket.share) * sizeof(float));
  }
}

}  // namespace quaver
