#include "train/gradient_exchange.h"

#include <algorithm>

namespace quaver {

namespace {

// Elements of a rank in a wave: 64 MiB in all, but no messages of less than 256 KiB.
Size wave_limit(Size ranks) { return std::max(Size{1} << 16, (Size{1} << 24) / ranks / 64 * 64); }

// One group alone is its own sum.
bool has_sums(int ranks, Size rounds) { return ranks > 1 || rounds > 1; }

Size padded(Size elements) { return (elements + 63) / 64 * 64; }  // as gradients are aligned

// Elements of the sums that a rank keeps, and of what it receives at once.
struct Elements {
  Size sums = 0;
  Size received = 0;
};

Elements elements_of(const Parameters& parameters, Size rounds) {
  const ShardPlace& place = parameters.place();
  if (!has_sums(place.ranks, rounds)) return {};
  Elements elements;
  if (place.has(ShardMode::optimizer) || place.ranks == 1) {
    for (const Parameter& parameter : parameters.all()) {
      const bool summed = parameter.owner == place.rank && parameter.has_gradient();
      elements.sums += summed ? padded(parameter.count()) : 0;
    }
  } else {
    elements.sums = parameters.rest().gradients.count() / place.ranks;
    for (const Bucket& bucket : parameters.buckets()) elements.sums += bucket.gradients.count() / place.ranks;
  }
  if (place.ranks > 1) elements.received = place.ranks * std::min(wave_limit(place.ranks), elements.sums);
  return elements;
}

View row_of(float* data, Size count) { return {data, Format::f32, 1, count}; }

std::size_t bytes_of(Size elements) { return static_cast<std::size_t>(elements) * sizeof(float); }

}  // namespace

Size GradientExchange::planned_bytes(const Parameters& parameters, Size rounds) {
  const Elements elements = elements_of(parameters, rounds);
  return 4 * (elements.sums + elements.received);
}

GradientExchange::GradientExchange(Engine& engine, Communicator& ranks, Parameters& parameters, Size rounds)
    : engine_(engine),
      ranks_(ranks),
      rounds_(rounds),
      gathers_(!ranks.is_alone() && !parameters.place().has(ShardMode::optimizer)) {
  buckets_.resize(parameters.buckets().size());
  if (!has_sums(ranks.size(), rounds)) return;
  memory_ = engine.device().allocate(static_cast<std::size_t>(planned_bytes(parameters, rounds)));
  auto* next = reinterpret_cast<float*>(memory_.get());
  for (std::size_t i = 0; i < buckets_.size(); ++i) buckets_[i] = waves_of(parameters.buckets()[i], next);
  rest_ = waves_of(parameters.rest(), next);
  received_ = next;
}

std::vector<GradientExchange::Wave> GradientExchange::waves_of(const Bucket& bucket, float*& sums) {
  if (gathers_) return equal_shares(bucket.gradients, sums);
  for (Parameter* parameter : bucket.parameters) {
    parameter->gradient_sum = {};
    if (parameter->owner != ranks_.rank()) continue;
    parameter->gradient_sum = {sums, Format::f32, parameter->rows, parameter->cols};
    sums += padded(parameter->count());
  }
  return shares_of_owners(bucket.parameters);
}

// Every rank of a wave has the same number of elements, one behind the other.
std::vector<GradientExchange::Wave> GradientExchange::equal_shares(const View& gradients, float*& sums) const {
  std::vector<Wave> waves;
  const Size ranks = ranks_.size();
  for (Size first = 0; first < gradients.count();) {
    const Size share = std::min(wave_limit(ranks), (gradients.count() - first) / ranks);
    Wave& wave = waves.emplace_back();
    for (Size rank = 0; rank < ranks; ++rank) {
      float* sum = rank == ranks_.rank() ? sums : nullptr;
      wave.of_rank.push_back({{gradients.f32() + first + rank * share, sum, share}});
    }
    sums += share;
    first += ranks * share;
  }
  return waves;
}

// Gradients of an owner lie side by side, and so do their sums: most of a wave is one segment.
void GradientExchange::append(std::vector<Segment>& segments, const Segment& next) {
  if (segments.empty() || segments.back().gradient + segments.back().count != next.gradient) {
    segments.push_back(next);
  } else {
    segments.back().count += next.count;
  }
}

std::vector<GradientExchange::Wave> GradientExchange::shares_of_owners(
    const std::vector<Parameter*>& parameters) const {
  std::vector<Wave> waves;
  const int ranks = ranks_.size();
  const Size limit = wave_limit(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    std::size_t wave = 0;
    Size room = limit;
    for (const Parameter* parameter : parameters) {
      if (parameter->owner != rank) continue;
      for (Size first = 0; first < padded(parameter->count());) {
        if (room == 0) ++wave, room = limit;
        if (wave == waves.size()) waves.push_back({std::vector<std::vector<Segment>>(static_cast<std::size_t>(ranks))});
        const Size count = std::min(room, padded(parameter->count()) - first);
        float* sum = parameter->gradient_sum.empty() ? nullptr : parameter->gradient_sum.f32() + first;
        append(waves[wave].of_rank[static_cast<std::size_t>(rank)], {parameter->gradient.f32() + first, sum, count});
        first += count;
        room -= count;
      }
    }
  }
  return waves;
}

// Every rank's gradients of what this one owns: segment by segment, each with those of all ranks in their order.
void GradientExchange::receive_parts(const Wave& wave) {
  std::vector<Message> sent;
  std::vector<Message> received;
  for (int i = 1; i < ranks_.size(); ++i) {
    const int to = (ranks_.rank() + i) % ranks_.size();
    const int from = (ranks_.rank() + ranks_.size() - i) % ranks_.size();
    for (const Segment& segment : wave.of_rank[static_cast<std::size_t>(to)]) {
      sent.push_back({to, segment.gradient, bytes_of(segment.count)});
    }
    float* parts = received_;
    for (const Segment& segment : wave.of_rank[static_cast<std::size_t>(ranks_.rank())]) {
      received.push_back({from, parts + from * segment.count, bytes_of(segment.count)});
      parts += ranks_.size() * segment.count;
    }
  }
  ranks_.exchange(sent, received);
}

void GradientExchange::add(const Wave& wave, Size round) {
  const std::vector<Segment>& own = wave.of_rank[static_cast<std::size_t>(ranks_.rank())];
  if (ranks_.is_alone()) {
    for (const Segment& segment : own) {
      engine_.run(SumInOrder{row_of(segment.gradient, segment.count), row_of(segment.sum, segment.count), round > 0});
    }
    return;
  }
  float* parts = received_;
  for (const Segment& segment : own) {
    engine_.run(SumInOrder{row_of(segment.gradient, segment.count),
                           row_of(parts + ranks_.rank() * segment.count, segment.count)});
    parts += ranks_.size() * segment.count;
  }
  receive_parts(wave);
  parts = received_;
  for (const Segment& segment : own) {
    const View of_ranks{parts, Format::f32, ranks_.size(), segment.count};
    engine_.run(SumInOrder{of_ranks, row_of(segment.sum, segment.count), round > 0});
    parts += ranks_.size() * segment.count;
  }
}

void GradientExchange::add(const std::vector<Wave>& waves, Size round) {
  for (const Wave& wave : waves) {
    add(wave, round);
    if (gathers_ && round + 1 == rounds_) gather(wave);
  }
}

Device::Place GradientExchange::add_bucket(Size bucket, Size round) {
  return engine_.device().aside([this, bucket, round] { add(buckets_[static_cast<std::size_t>(bucket)], round); });
}

void GradientExchange::add_rest(Size round) { add(rest_, round); }

void GradientExchange::add_all(Size round) {
  for (const std::vector<Wave>& bucket : buckets_) add(bucket, round);
  add_rest(round);
}

// What each rank has added up becomes the gradient on all of them.
void GradientExchange::gather(const Wave& wave) {
  const Segment& own = wave.of_rank[static_cast<std::size_t>(ranks_.rank())].front();
  engine_.run(SumInOrder{row_of(own.sum, own.count), row_of(own.gradient, own.count)});
  ranks_.all_gather(wave.of_rank.front().front().gradient, bytes_of(own.count));
}

}  // namespace quaver
