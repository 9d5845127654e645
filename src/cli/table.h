// Tables on the terminal.
#pragma once

#include <string>
#include <vector>

#include "report/page.h"

namespace quaver {

// Columns padded to the widest cell, the first to the left and the others to the right. The first row is the titles.
std::string aligned(const std::vector<std::vector<std::string>>& rows);

// The same for a report; columns of sites to the left as well.
report::Table report_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace quaver
