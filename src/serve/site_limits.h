// Thresholds by which the page colors the statistics of a run's sites as fine, to be watched or bad: those of the run's
// alerts. Sites that are stored alike share one set. Internal to this module.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "store/reader.h"

namespace quaver {

struct SiteLimits {
  std::vector<nlohmann::json> sets;      // {"saturated_percent":{"above":[0.5,1]},…}
  std::vector<std::size_t> set_of_site;  // in the order of the run's sites
};

SiteLimits site_limits(const RunDetails& run);

}  // namespace quaver
