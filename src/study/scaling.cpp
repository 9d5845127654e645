#include "study/scaling.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <queue>
#include <set>

namespace quaver {

namespace {

constexpr double call_seconds = 8.4e-6;            // NCCL's own tuning table: before the first byte moves
constexpr Size peers_at_once = 8;                  // that a rank's sends and receives are under way with
constexpr double wave_bytes = 64.0 * 1024 * 1024;  // GradientExchange's
constexpr double forward_share = 1.0 / 3;          // of a micro-step; the rest is the backward pass
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

Size most_of(std::span<const ParameterSize> parameters, Size ParameterSize::*member) {
  Size most = 0;
  for (const ParameterSize& parameter : parameters) most = std::max(most, parameter.*member);
  return most;
}

// Bytes that owners send of a section, and of what is read anywhere.
double sent_of_section(std::span<const ParameterSize> parameters, Size section) {
  double sum = 0;
  for (const ParameterSize& parameter : parameters) {
    if (parameter.section == section) sum += static_cast<double>(parameter.whole_bytes);
    if (parameter.code_section == section) sum += static_cast<double>(parameter.codes_bytes);
  }
  return sum;
}

Size waves_of(double bytes) { return std::max<Size>(1, static_cast<Size>(std::ceil(bytes / wave_bytes))); }

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

// What of an exchange is left to wait for behind a pass of some length: at the least the share that cannot be under way
// while it runs, because it is complete at its end, or needed at its beginning.
double exposed_behind(double seconds, double window, double alone) {
  return std::max(seconds - window, seconds * alone);
}

class StageModel {
 public:
  StageModel(const ScalingInput& input, ShardMode stage)
      : input_(input),
        stage_(stage),
        sections_(most_of(input.parameters, &ParameterSize::code_section) + 1),
        buckets_(most_of(input.parameters, &ParameterSize::bucket) + 1) {}

  bool shards_gradients() const { return stage_ >= ShardMode::gradients; }
  Size rounds() const { return shards_gradients() ? input_.micro_steps : input_.rounds; }

  // Of a step, on average over the ranks.
  double gradient_bytes() const {
    const double one = gradients(Ownership::whole_parameters).mean;
    return static_cast<double>(rounds()) * one + (stage_ == ShardMode::none ? sums().mean : 0);
  }
  double weight_bytes() const {
    if (stage_ == ShardMode::none) return 0;
    const double all = sent_of(input_.parameters);
    if (stage_ != ShardMode::weights) return to_others(all / ranks());
    const double vectors = sent_of_section(input_.parameters, ParameterSize::before_sections);
    const double moved = (all - vectors) * (1 + gathered_backward());
    return to_others((vectors + static_cast<double>(input_.micro_steps) * moved) / ranks());
  }

  // Of one round: to the ranks that add them up.
  Transfer gradients(Ownership ownership) const {
    const double all = gradients_of_all();
    double share = all / ranks();
    if (stage_ != ShardMode::none) {
      share = input_.gradient_bytes * largest_share(input_.parameters, input_.cluster.gpus, ownership).count;
    }
    const Size pieces = shards_gradients() ? sections_ : std::max(buckets_, waves_of(all));
    return {Route::direct, to_others(all / ranks()), to_others(share), pieces + 1};
  }
  // Their sums to all ranks, which only ranks that keep everything need.
  Transfer sums() const {
    const double all = gradients_of_all();
    return {Route::ring, to_others(all / ranks()), to_others(all / ranks()), std::max(buckets_, waves_of(all)) + 1};
  }
  // Of one gather: from their owners.
  Transfer weights(Ownership ownership) const {
    const double all = sent_of(input_.parameters);
    const double share = largest_share(input_.parameters, input_.cluster.gpus, ownership).sent_bytes;
    return {Route::direct, to_others(all / ranks()), to_others(share),
            stage_ == ShardMode::weights ? sections_ : buckets_};
  }

  Exposed exposed(Ownership ownership) const {
    const double exchange = seconds_of(gradients(ownership), input_.cluster);
    const double gather_sums = stage_ == ShardMode::none ? seconds_of(sums(), input_.cluster) : 0;
    const double gather = stage_ == ShardMode::none ? 0 : seconds_of(weights(ownership), input_.cluster);
    const double gather_again = stage_ == ShardMode::weights ? gathered_backward() * gather : 0;
    const auto micro_steps = static_cast<double>(input_.micro_steps);
    const double gathers = stage_ == ShardMode::weights ? micro_steps : 1;
    Exposed seconds;
    seconds.apart = static_cast<double>(rounds()) * exchange + gather_sums + gathers * (gather + gather_again);
    if (!input_.rank_seconds) {
      seconds.overlapped = seconds.apart;
      return seconds;
    }
    const double forward = input_.overlap * forward_share * *input_.rank_seconds / micro_steps;
    const double backward = input_.overlap * (1 - forward_share) * *input_.rank_seconds / micro_steps;
    const double arriving = gathers * exposed_behind(gather, forward, needed_first());
    const auto leaving = [&](double bytes_seconds) { return exposed_behind(bytes_seconds, backward, complete_last()); };
    seconds.overlapped = arriving + static_cast<double>(rounds() - 1) * leaving(exchange + gather_again) +
                         leaving(exchange + gather_again + gather_sums);
    return seconds;
  }

 private:
  double ranks() const { return static_cast<double>(input_.cluster.gpus); }
  double to_others(double bytes) const { return bytes * (ranks() - 1); }
  double gradients_of_all() const {
    const bool equal = stage_ == ShardMode::none && input_.equal_shares > 0;
    return input_.gradient_bytes * (equal ? static_cast<double>(input_.equal_shares) : count_of(input_.parameters));
  }

  // Shares of the weights: those that a backward pass gathers once more, all but the first section's, which it does not
  // read, and the last two, which are still there; and those that a forward pass waits for before it can begin.
  double gathered_backward() const {
    double kept = sent_of_section(input_.parameters, ParameterSize::before_sections);
    for (const Size section : std::set<Size>{0, sections_ - 2, sections_ - 1}) {
      kept += section >= 0 ? sent_of_section(input_.parameters, section) : 0;
    }
    const double moved =
        sent_of(input_.parameters) - sent_of_section(input_.parameters, ParameterSize::before_sections);
    return moved > 0 ? (sent_of(input_.parameters) - kept) / moved : 0;
  }
  double needed_first() const {
    double first = 0;
    for (const ParameterSize& parameter : input_.parameters) {
      const bool together = stage_ != ShardMode::weights && parameter.bucket == 0 && !parameter.late;
      const bool begins = parameter.section == ParameterSize::before_sections || parameter.section == 0;
      if (begins || together) first += static_cast<double>(parameter.whole_bytes);
      if (parameter.code_section == 0 || together) first += static_cast<double>(parameter.codes_bytes);
    }
    return first / std::max(1.0, sent_of(input_.parameters));
  }
  // Share of the gradients that are complete when the backward pass is.
  double complete_last() const {
    double last = 0;
    for (const ParameterSize& parameter : input_.parameters) {
      const bool first = shards_gradients() ? parameter.section == 0 : parameter.bucket == 0;
      if (parameter.late || first) last += static_cast<double>(parameter.count);
    }
    return last / std::max(1.0, count_of(input_.parameters));
  }

  const ScalingInput& input_;
  ShardMode stage_;
  Size sections_;
  Size buckets_;
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
  scaling.gradients_sent = model.gradient_bytes();
  scaling.weights_sent = model.weight_bytes();
  scaling.whole = model.exposed(Ownership::whole_parameters);
  scaling.split = model.exposed(Ownership::split);
  return scaling;
}

double efficiency(double rank_seconds, double exposed) { return rank_seconds / (rank_seconds + exposed); }

Advice advise(std::span<const StageEstimate> stages, const ScalingInput& input, std::optional<Size> available) {
  const auto step = [&](const StageEstimate& stage) {
    return input.rank_seconds.value_or(0) + stage.scaling.whole.overlapped;
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
