// Starts the ranks of a training run on this machine and stays with them: signals reach them all, one that dies takes
// the others along, and a run that lost a rank goes on from its last checkpoint as often as it may.
#pragma once

#include "cli/verbs.h"

namespace quaver {

// Returns the exit status of the run.
int launch_ranks(const TrainArguments& arguments);

}  // namespace quaver
