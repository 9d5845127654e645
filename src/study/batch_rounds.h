// How the ranks of a study measure its batches: in rounds, batch i by rank i mod ranks. Every rank has the whole model
// and gets what all of them found, so that each comes to the same result, which is that of one process.
#pragma once

#include <functional>
#include <vector>

#include "study/subject.h"

namespace quaver {

// What was found in one batch: as many figures and statistics as in any other.
struct BatchFindings {
  std::vector<double> figures;
  std::vector<CastStatistics> seen = {};
};

struct BatchRounds {
  Size batches = 0;
  std::function<BatchFindings(Size batch)> measure;            // on one rank
  std::function<void(Size batch, const BatchFindings&)> take;  // on every rank, in the batches' order
};

// Throws StudyInterrupted on all ranks, between rounds, where one of them was asked to stop.
void measure_batches(const Subject& subject, const StudyProgress& progress, const BatchRounds& rounds);

}  // namespace quaver
