// Prompts of a file or of standard input.
#pragma once

#include <string>
#include <vector>

namespace quaver {

// One per line of a text file, or of standard input where the name is "-"; the field "prompt" of each object of a
// .jsonl file. Blank lines are passed over. Error where one is not UTF-8 or there is none.
std::vector<std::string> read_prompts(const std::string& name);

}  // namespace quaver
