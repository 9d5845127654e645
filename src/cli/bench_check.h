// Whether the steps that `bench step` times are steps of training: what a recipe learns beside bf16, and how many of
// its codes are zero. Gradients that underflow cost less time and power than real ones, so a figure without this check
// can be the speed of multiplying zeros.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "train/trainer.h"

namespace quaver {

// Of the elements that one micro-step casts to 8 bits or fewer, over all sites of a role.
struct ZeroCodes {
  std::uint64_t elements = 0;
  std::uint64_t zeros = 0;        // whose code is zero
  std::uint64_t underflowed = 0;  // of those, that were not zero before the cast

  double share() const { return elements > 0 ? static_cast<double>(zeros) / static_cast<double>(elements) : 0; }
  double underflow_share() const {
    return elements > 0 ? static_cast<double>(underflowed) / static_cast<double>(elements) : 0;
  }
};

enum class Verdict : std::uint8_t { learns, learns_too_little, mostly_zeros, reference_learns_too_little };

// The loss of each of the same few optimizer steps on one micro-batch, from the same weights: that of the recipe, and
// that of bf16 with the same parametrization.
struct LearningCheck {
  // What bf16 must lower its loss by (nats per token) for the comparison to mean anything, the share of that fall that
  // a recipe must reach, and the share of zero codes that no role may exceed. Small models reach 0.99 to 1.00 in 8
  // bits, 0.89 to 0.97 in 4 bits and, where a BF16 head alone has gradients, 0.15 to 0.18. Where a part of the
  // gradients is left, Adam makes up for their size, and the loss falls at 0.95 with three quarters of them zero: hence
  // the last.
  static constexpr double least_fall = 0.005;
  static constexpr double least_share = 0.8;
  static constexpr double most_zeros = 0.5;

  std::vector<double> losses;
  std::vector<double> reference;
  std::array<ZeroCodes, 3> zero_codes;  // in the last of these steps, by role

  double fall() const { return losses.front() - losses.back(); }
  double reference_fall() const { return reference.front() - reference.back(); }
  double share() const { return fall() / reference_fall(); }
  Role most_lost() const;  // the role with the largest share of zero codes
  Verdict verdict() const;
  void require() const;  // throws Error with both losses unless the recipe learns
};

// Trains twice, one trainer after the other. The micro-batch is repeated, so that the loss can fall whatever the data
// is. The learning rate is a tenth of the config's peak from the first step on: at the peak without a warm-up the loss
// of large models leaps, and where it lands after a few steps tells recipes apart by chance.
LearningCheck check_learning(const Config& config, const Notice& notice);

}  // namespace quaver
