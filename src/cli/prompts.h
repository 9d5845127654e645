// Prompts of a file or of standard input.
#pragma once

#include <string>
#include <vector>

#include "data/examples.h"

namespace quaver {

// One per line of a text file, or of standard input where the name is "-"; of a .jsonl file the "messages" or the
// "prompt" of each object (parse_prompt). Blank lines and prompts are passed over. Error where one is not UTF-8 or
// there is none.
std::vector<Prompt> read_prompts(const std::string& name);

}  // namespace quaver
