#include "cli/table.h"

#include <algorithm>

namespace quaver {

namespace {

// Characters, not bytes: titles and dashes are UTF-8.
std::size_t shown_width(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

}  // namespace

std::string aligned(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths(rows.front().size(), 0);
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) widths[c] = std::max(widths[c], shown_width(row[c]));
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string padding(widths[c] - shown_width(row[c]), ' ');
      text += c == 0 ? row[c] + padding : "  " + padding + row[c];
    }
    text += "\n";
  }
  return text;
}

report::Table report_table(const std::vector<std::vector<std::string>>& rows) {
  report::Table table;
  for (const std::string& title : rows.front()) {
    const bool left = table.columns.empty() || title.ends_with("site");
    table.columns.push_back({title, left ? report::Align::left : report::Align::right});
  }
  table.rows.assign(rows.begin() + 1, rows.end());
  return table;
}

}  // namespace quaver
