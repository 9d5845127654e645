// How a benchmark is told: as tables on the terminal and as a page.
#pragma once

#include <string>

#include "study/bench_diff.h"

namespace quaver {

std::string bench_tables(const Bench& bench);
std::string bench_page(const Bench& bench);
std::string bench_difference_text(const BenchDifference& difference);

}  // namespace quaver
