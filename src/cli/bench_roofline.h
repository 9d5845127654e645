// The roofline of a benchmark: what the machine could reach at each arithmetic intensity, and what ran on it.
#pragma once

#include "report/chart.h"
#include "study/bench.h"

namespace quaver {

report::ScatterChart roofline_of(const Bench& bench);

}  // namespace quaver
