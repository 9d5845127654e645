// The same model, data and seed under several recipes: the runs, the table and the report.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "config/config.h"
#include "train/run.h"

namespace quaver {

// One recipe's runs, one per seed.
struct Contender {
  std::string label;  // as asked for: "fp8-delayed", "fp32@umup"
  Config config;
  std::vector<RunResult> runs;

  // Mean over seeds: validation loss where there is one, else training loss.
  double final_loss() const;
  double loss_spread() const;  // largest minus smallest over seeds
};

// The contender that others are measured against: the widest of the same parametrisation, else the widest of all.
std::size_t baseline_of(const std::vector<Contender>& contenders, std::size_t index);

// Gap to the baseline in percent of its loss.
double gap_percent(const std::vector<Contender>& contenders, std::size_t index);

std::string comparison_table(const std::vector<Contender>& contenders);
std::string comparison_report(const std::vector<Contender>& contenders);
std::string comparison_json(const std::vector<Contender>& contenders);

}  // namespace quaver
