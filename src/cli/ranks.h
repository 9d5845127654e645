// A verb that several ranks run together: what mpirun started, or this process alone.
#pragma once

#include <functional>

#include "comm/launch.h"

namespace quaver {

// Connects the ranks and runs the verb on each. An error that all of them throw is told by the first one; any other
// ends them all and is told with the rank's name.
int on_ranks(const std::function<int(Communicator&, const Launch&)>& verb);

// A verb that does not: refused where several were started.
int in_one_process(const std::string& verb, const std::function<int()>& act);

}  // namespace quaver
