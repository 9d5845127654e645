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
      if (parameter.owner == place.rank) elements.sums += padded(parameter.count());
    }
  } else {
    elements.sums = parameters.gradients().count() / place.ranks;
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
    : engine_(engine), ranks_(ranks), gathers_(!ranks.is_alone() && !parameters.place().has(ShardMode::optimizer)) {
  if (!has_sums(ranks.size(), rounds)) return;
  memory_ = engine.device().allocate(static_cast<std::size_t>(planned_bytes(parameters, rounds)));
  if (gathers_) {
    share_equally(parameters.gradients(), reinterpret_cast<float*>(memory_.get()));
    return;
  }
  std::vector<Parameter*> lasting;
  std::vector<std::vector<Parameter*>> sections(static_cast<std::size_t>(parameters.section() + 1));
  for (Parameter* parameter : parameters.by_owner()) {
    (parameters.lasts(*parameter) ? lasting : sections[static_cast<std::size_t>(parameter->section)])
        .push_back(parameter);
  }
  auto* next = reinterpret_cast<float*>(memory_.get());
  const auto place_sums = [&](const std::vector<Parameter*>& some) {
    for (Parameter* parameter : some) {
      parameter->gradient_sum = {};
      if (parameter->owner != ranks.rank()) continue;
      parameter->gradient_sum = {next, Format::f32, parameter->rows, parameter->cols};
      next += padded(parameter->count());
    }
  };
  place_sums(lasting);
  for (const auto& section : sections) place_sums(section);
  received_ = next;
  lasting_ = waves_of(lasting, ranks.size());
  for (const auto& section : sections) sections_.push_back(waves_of(section, ranks.size()));
}

// Every rank of a wave has the same number of elements, one behind the other.
void GradientExchange::share_equally(const View& gradients, float* sums) {
  const Size ranks = ranks_.size();
  for (Size first = 0; first < gradients.count();) {
    const Size share = std::min(wave_limit(ranks), (gradients.count() - first) / ranks);
    Wave& wave = lasting_.emplace_back();
    for (Size rank = 0; rank < ranks; ++rank) {
      float* sum = rank == ranks_.rank() ? sums : nullptr;
      wave.of_rank.push_back({{gradients.f32() + first + rank * share, sum, share}});
    }
    sums += share;
    first += ranks * share;
  }
  received_ = sums;
}

// Gradients of an owner lie side by side, and so do their sums: most of a wave is one segment.
void GradientExchange::append(std::vector<Segment>& segments, const Segment& next) {
  if (segments.empty() || segments.back().gradient + segments.back().count != next.gradient) {
    segments.push_back(next);
  } else {
    segments.back().count += next.count;
  }
}

std::vector<GradientExchange::Wave> GradientExchange::waves_of(const std::vector<Parameter*>& parameters, int ranks) {
  std::vector<Wave> waves;
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

void GradientExchange::add(const std::vector<Wave>& waves, Size round) {
  for (const Wave& wave : waves) {
    const std::vector<Segment>& own = wave.of_rank[static_cast<std::size_t>(ranks_.rank())];
    if (ranks_.is_alone()) {
      for (const Segment& segment : own) {
        engine_.run(SumInOrder{row_of(segment.gradient, segment.count), row_of(segment.sum, segment.count), round > 0});
      }
      continue;
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
}

void GradientExchange::add(Size round) { add(lasting_, round); }

void GradientExchange::add_section(Size section, Size round) {
  add(sections_[static_cast<std::size_t>(section)], round);
}

// What each rank has added up becomes the gradient on all of them.
void GradientExchange::gather(const Wave& wave) {
  const Segment& own = wave.of_rank[static_cast<std::size_t>(ranks_.rank())].front();
  engine_.run(SumInOrder{row_of(own.sum, own.count), row_of(own.gradient, own.count)});
  ranks_.all_gather(wave.of_rank.front().front().gradient, bytes_of(own.count));
}

void GradientExchange::finish() {
  if (!gathers_) return;
  for (const Wave& wave : lasting_) gather(wave);
}

}  // namespace quaver
