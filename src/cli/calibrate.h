// A calibration as the verb shows it: on the terminal, as JSON and as an HTML report.
#pragma once

#include <optional>
#include <string>

#include "study/calibrate.h"

namespace quaver {

// What all sites of one role would suffer at one percentile.
struct RoleEffect {
  Role role = Role::x;
  double percentile = 100;
  double saturated_percent = 0;  // of the worst site
  double underflow_percent = 0;  // of the worst site
  double worst_sqnr_db = 0;
  double median_sqnr_db = 0;
  std::string worst_site;  // by SQNR
};
std::vector<RoleEffect> role_effects(const Calibration& calibration);

std::string calibration_table(const Calibration& calibration);
std::string drift_table(const Drift& drift);
std::string calibration_json(const Calibration& calibration, const std::optional<Drift>& drift);
std::string calibration_report(const Calibration& calibration, const std::optional<Drift>& drift,
                               const std::string& against);

}  // namespace quaver
