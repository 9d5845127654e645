#include "study/scaling.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <queue>
#include <set>

namespace quaver {

namespace {

constexpr double call_seconds = 8.4e-6;              // NCCL's own tuning table: before the first byte moves
constexpr Size peers_at_once = 8;                    // that a rank's sends and receives are under way with
constexpr double bucket_bytes = 64.0 * 1024 * 1024;  // GradientExchange's
constexpr double forward_share = 1.0 / 3;            // of a micro-step; the rest is the backward pass
constexpr double as_fast = 0.01;

double sum_of(std::span<const ParameterSize> parameters, Size (*bytes)(const ParameterSize&)) {
  double sum = 0;
  for (const ParameterSize& parameter : parameters) sum += static_cast<double>(bytes(parameter));
  return sum;
}
double count_of(std::span<const ParameterSize> parameters) {
  return sum_of(parameters, [](const ParameterSize& p) { return p.count; });
}
double sent_of(std::span<const ParameterSize> parameters) {
  return sum_of(parameters, [](const ParameterSize& p) { return p.sent_bytes(); });
}

// How many are gathered and given back one after the other: a block each, or a parameter outside of the blocks.
Size units_of(std::span<const ParameterSize> parameters) {
  std::set<Size> units;
  Size outside = -1;
  for (const ParameterSize& parameter : parameters) units.insert(parameter.block >= 0 ? parameter.block : outside--);
  return static_cast<Size>(units.size());
}

Size buckets_of(double bytes) { return std::max<Size>(1, static_cast<Size>(std::ceil(bytes / bucket_bytes))); }

double latency_of(Route route, const Cluster& cluster) {
  const auto hops = [](Size number, const Link& link) { return static_cast<double>(number) * link.hop_seconds; };
  const auto turns = [](Size peers) { return (peers + peers_at_once - 1) / peers_at_once; };
  const Size inside = route == Route::ring ? cluster.gpus - cluster.machines : turns(cluster.per_machine() - 1);
  const Size between = route == Route::ring ? cluster.machines - 1 : turns(cluster.gpus - cluster.per_machine());
  return call_seconds + hops(inside, cluster.inside) + hops(between, cluster.between);
}

// Bytes that leave the machine by the busiest adapter.
double leaving(const Transfer& transfer, const Cluster& cluster) {
  const auto each = static_cast<double>(cluster.per_machine());
  const bool shared = cluster.between.lane == Lane::of_the_machine;
  if (cluster.machines == 1) return 0;
  if (transfer.route == Route::ring) return shared ? transfer.mean : transfer.mean / each;
  const double outside =
      static_cast<double>(cluster.gpus - cluster.per_machine()) / static_cast<double>(cluster.gpus - 1);
  return outside * (shared ? transfer.busiest + (each - 1) * transfer.mean : transfer.busiest);
}

double staying(const Transfer& transfer, const Cluster& cluster) {
  if (cluster.per_machine() == 1) return 0;
  if (transfer.route == Route::ring) return transfer.mean;
  return transfer.busiest * static_cast<double>(cluster.per_machine() - 1) / static_cast<double>(cluster.gpus - 1);
}

// What of an exchange is left to wait for behind a pass of some length: its last piece at the least.
double exposed_behind(double seconds, double window, Size pieces) {
  return std::max(seconds - window, seconds / static_cast<double>(pieces));
}

class StageModel {
 public:
  StageModel(const ScalingInput& input, ShardMode stage)
      : input_(input), stage_(stage), units_(units_of(input.parameters)) {}

  bool shards_gradients() const { return stage_ >= ShardMode::gradients; }
  Size rounds() const { return shards_gradients() ? input_.micro_steps : input_.rounds; }
  Size weight_gathers() const {
    if (stage_ == ShardMode::none) return 0;
    return stage_ == ShardMode::weights ? 2 * input_.micro_steps : 1;
  }

  // Of one round: to the ranks that add them up.
  Transfer gradients(Ownership ownership) const {
    const double all = input_.gradient_bytes * count_of(input_.parameters);
    double share = all / ranks();
    if (stage_ != ShardMode::none) {
      share = input_.gradient_bytes * largest_share(input_.parameters, input_.cluster.gpus, ownership).count;
    }
    return {Route::direct, to_others(all / ranks()), to_others(share), shards_gradients() ? units_ : buckets_of(all)};
  }
  // Their sums to all ranks, which only ranks that keep everything need.
  Transfer sums() const {
    const double all = input_.gradient_bytes * count_of(input_.parameters);
    return {Route::ring, to_others(all / ranks()), to_others(all / ranks()), buckets_of(all)};
  }
  // Of one gather: from their owners.
  Transfer weights(Ownership ownership) const {
    const double all = sent_of(input_.parameters);
    const double share = largest_share(input_.parameters, input_.cluster.gpus, ownership).sent_bytes;
    const Size calls = stage_ == ShardMode::weights ? units_ : buckets_of(all);
    return {Route::direct, to_others(all / ranks()), to_others(share), calls};
  }

  Exposed exposed(Ownership ownership) const {
    const Transfer round = gradients(ownership);
    const double exchange = seconds_of(round, input_.cluster);
    const double gather_sums = stage_ == ShardMode::none ? seconds_of(sums(), input_.cluster) : 0;
    const Transfer gathered = weights(ownership);
    const double gather = weight_gathers() > 0 ? seconds_of(gathered, input_.cluster) : 0;
    Exposed seconds;
    seconds.now =
        static_cast<double>(rounds()) * exchange + gather_sums + static_cast<double>(weight_gathers()) * gather;
    if (!input_.rank_seconds) {
      seconds.overlapped = seconds.now;
      return seconds;
    }
    const double micro_step = *input_.rank_seconds / static_cast<double>(input_.micro_steps);
    const double forward = input_.overlap * forward_share * micro_step;
    const double backward = input_.overlap * (1 - forward_share) * micro_step;
    if (stage_ == ShardMode::weights) {
      seconds.overlapped =
          static_cast<double>(input_.micro_steps) * (exposed_behind(gather, forward, gathered.calls) +
                                                     exposed_behind(gather + exchange, backward, gathered.calls));
      return seconds;
    }
    seconds.overlapped = static_cast<double>(rounds() - 1) * exposed_behind(exchange, backward, round.calls) +
                         exposed_behind(exchange + gather_sums, backward, round.calls) +
                         (gather > 0 ? exposed_behind(gather, forward, gathered.calls) : 0);
    return seconds;
  }

 private:
  double ranks() const { return static_cast<double>(input_.cluster.gpus); }
  double to_others(double bytes) const { return bytes * (ranks() - 1); }

  const ScalingInput& input_;
  ShardMode stage_;
  Size units_;
};

std::string gib(Size bytes) { return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / 0x1p30); }

}  // namespace

std::string_view name_of(ShardMode stage) {
  constexpr std::array<std::string_view, 4> names = {"none", "optimizer", "gradients", "weights"};
  return names[static_cast<std::size_t>(stage)];
}

LargestShare largest_share(std::span<const ParameterSize> parameters, Size ranks, Ownership ownership) {
  const auto number = static_cast<double>(ranks);
  if (ownership == Ownership::split) return {count_of(parameters) / number, sent_of(parameters) / number};
  std::vector<ParameterSize> sorted(parameters.begin(), parameters.end());
  std::ranges::stable_sort(sorted, std::greater{}, &ParameterSize::count);
  struct Owner {
    Size count = 0;
    Size sent = 0;
    bool operator>(const Owner& other) const { return count > other.count; }
  };
  std::priority_queue<Owner, std::vector<Owner>, std::greater<>> owners(
      std::greater<>{}, std::vector<Owner>(static_cast<std::size_t>(ranks)));
  LargestShare largest;
  for (const ParameterSize& parameter : sorted) {
    Owner owner = owners.top();
    owners.pop();
    owner.count += parameter.count;
    owner.sent += parameter.sent_bytes();
    owners.push(owner);
    largest.count = std::max(largest.count, static_cast<double>(owner.count));
    largest.sent_bytes = std::max(largest.sent_bytes, static_cast<double>(owner.sent));
  }
  return largest;
}

double seconds_of(const Transfer& transfer, const Cluster& cluster) {
  if (cluster.gpus == 1) return 0;
  return std::max(staying(transfer, cluster) / cluster.inside.bytes_per_second,
                  leaving(transfer, cluster) / cluster.between.bytes_per_second) +
         static_cast<double>(transfer.calls) * latency_of(transfer.route, cluster);
}

StageScaling scale(const ScalingInput& input, ShardMode stage) {
  const StageModel model(input, stage);
  StageScaling scaling;
  scaling.stage = stage;
  scaling.gradients_sent = static_cast<double>(model.rounds()) * model.gradients(Ownership::whole_parameters).mean;
  if (stage == ShardMode::none) scaling.gradients_sent += model.sums().mean;
  scaling.weights_sent = static_cast<double>(model.weight_gathers()) * model.weights(Ownership::whole_parameters).mean;
  scaling.whole = model.exposed(Ownership::whole_parameters);
  scaling.split = model.exposed(Ownership::split);
  return scaling;
}

double efficiency(double rank_seconds, double exposed) { return rank_seconds / (rank_seconds + exposed); }

Advice advise(std::span<const StageEstimate> stages, const ScalingInput& input, std::optional<Size> available) {
  const auto step = [&](const StageEstimate& stage) {
    return input.rank_seconds.value_or(0) + stage.scaling.whole.now;
  };
  const auto fits = [&](const StageEstimate& stage) { return !available || stage.needed <= *available; };
  const auto name = [](const StageEstimate& stage) { return name_of(stage.scaling.stage); };
  const StageEstimate* fastest = nullptr;
  for (const StageEstimate& stage : stages) {
    if (fits(stage) && (fastest == nullptr || step(stage) < step(*fastest))) fastest = &stage;
  }
  if (fastest == nullptr) {
    const auto least = std::ranges::min_element(stages, {}, &StageEstimate::needed);
    return {least->scaling.stage, false,
            fmt::format("no stage fits: {} needs the least, {} of {}. Choose a smaller train.batch, "
                        "train.memory=small, optim.moments=fp8 or more GPUs",
                        name(*least), gib(least->needed), gib(*available))};
  }
  const StageEstimate* chosen = fastest;
  for (const StageEstimate& stage : stages) {
    if (fits(stage) && stage.needed < chosen->needed && step(stage) <= (1 + as_fast) * step(*fastest)) chosen = &stage;
  }
  std::string why = "the fastest";
  if (chosen != fastest) {
    why =
        fmt::format("as fast as {} within 1 %, and {} smaller", name(*fastest), gib(fastest->needed - chosen->needed));
  }
  std::string refused;
  for (const StageEstimate& stage : stages) {
    if (!fits(stage)) refused += fmt::format("{}{}", refused.empty() ? "" : ", ", name(stage));
  }
  if (!refused.empty()) why += fmt::format("; not into {}: {}", gib(*available), refused);
  return {chosen->scaling.stage, true, why};
}

}  // namespace quaver
