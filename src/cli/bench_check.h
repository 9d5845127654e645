// Whether the steps that `bench step` times are steps of training: what a recipe learns beside bf16, and how many of
// its codes are zero. Gradients that underflow cost less time and power than real ones, so a measurement without this
// check can be the speed of multiplying zeros.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "study/repeated_batch.h"
#include "train/trainer.h"

namespace quaver {

// Of the elements that one micro-step casts to 8 bits or fewer, over all sites of a role.
struct ZeroCodes {
  std::uint64_t elements = 0;
  std::uint64_t zeros = 0;        // whose code is zero
  std::uint64_t underflowed = 0;  // of those, that were not zero before the cast
  double most_zeros = 0;          // as many as the alerts for underflow tolerate, which depends on the format

  double share() const { return elements > 0 ? static_cast<double>(zeros) / static_cast<double>(elements) : 0; }
  double underflow_share() const {
    return elements > 0 ? static_cast<double>(underflowed) / static_cast<double>(elements) : 0;
  }
  bool is_too_many() const { return static_cast<double>(zeros) > most_zeros; }
};

// Adds what a site of low precision cast in its last step with full statistics to the counts by role.
void count_zeros(const ScaleEntry& entry, std::array<ZeroCodes, 3>& counts);

enum class LearningVerdict : std::uint8_t { learns, learns_too_little, too_many_zeros, reference_learns_too_little };

// timed_steps: those of the benchmark. one_batch: a micro-batch repeated, where the timed steps have too few tokens, or
// are too few, for bf16's loss to fall clear of the noise. Random tokens have little to learn, but can be memorized.
enum class LearningData : std::uint8_t { timed_steps, one_batch };

// bf16's losses in the timed steps, and of which config: those of all recipes of a model are compared with the same.
struct Reference {
  std::string config;  // fingerprint
  std::vector<double> losses;
};

// The losses of the same steps from the same weights: those of the recipe, and of bf16 with the same parametrization.
struct LearningCheck {
  // The share of bf16's fall that a recipe must reach. On one batch small models reach 0.99 to 1.00 in 8 bits, 0.89 to
  // 0.97 in 4 bits and, where a BF16 head alone has gradients, 0.15 to 0.18; large ones 0.96 to 1.15 in 8 bits. In the
  // timed steps of GPT 350M it is 1.00 to 1.02, and below 0 where most gradients are zero, the head's too. Where the
  // head is in BF16 and some gradients are left, the loss falls all the same: the zero codes tell.
  static constexpr double least_share = least_share_of_fall;

  LearningData data = LearningData::timed_steps;
  Size tokens = 0;  // of a step
  std::vector<double> losses;
  std::vector<double> reference;
  std::array<ZeroCodes, 3> zero_codes;  // by role
  Reference timed_reference;

  double fall() const { return losses.front() - losses.back(); }
  double reference_fall() const { return reference.front() - reference.back(); }
  double share() const { return fall() / reference_fall(); }
  // What bf16's loss must fall by for the comparison to mean anything: clear of the noise of a step's mean, whose
  // tokens' losses differ by less than a nat.
  double least_fall() const;
  LearningVerdict verdict() const;
  void require() const;  // throws Error with both losses unless the recipe learns
};

// The reference in an earlier benchmark's JSON. Throws Error unless it is that of this config.
Reference read_reference(const std::filesystem::path& path, const Config& config);

// Trains as is needed, one trainer after the other. `timed` are the losses of the benchmark of this config.
LearningCheck check_learning(const Config& config, const std::vector<double>& timed,
                             const std::optional<Reference>& known, const Notice& notice);

}  // namespace quaver
