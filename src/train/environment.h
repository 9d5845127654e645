// Where a run takes place.
#pragma once

#include <string>

#include "engine/engine.h"

namespace quaver {

// As the system names it; "unknown" where it does not.
std::string cpu_model();

// "g++ 12.2.0".
std::string compiler_name();

// The env.json of a run: version, compiler, CPU, engine, time.
std::string environment_json(const Engine& engine, int ranks);

}  // namespace quaver
