// The command line: parses the words and runs the verb they ask for.
#pragma once

#include <string>
#include <vector>

namespace quaver {

// Words without the program's name. Returns the exit status; throws Error where they cannot be understood.
int run_command_line(const std::vector<std::string>& words);

}  // namespace quaver
