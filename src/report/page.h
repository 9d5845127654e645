// A report as one HTML file: nothing is fetched, no script is needed to read it, and it prints. Every text is escaped;
// only figures, which to_svg makes, go in as they are, and a content security policy forbids all but the page's own
// style and script.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quaver::report {

enum class Align : std::uint8_t { left, center, right };

struct Column {
  std::string name;
  Align align = Align::left;
};

// The first column names its row. Numbers belong in right-aligned columns, formatted to the same number of decimals.
struct Table {
  std::string caption;
  std::vector<Column> columns;
  std::vector<std::vector<std::string>> rows;
  std::set<std::size_t> strong_rows;  // set in bold, for example the best
};

struct KeyValue {
  std::string key;
  std::string value;
};

// A headline figure: a large value with what it is above and a remark below.
struct Headline {
  std::string label;
  std::string value;
  std::string remark;
};

// Parts appear in the order of the calls, which can be chained.
class Page {
 public:
  explicit Page(std::string title, std::string subtitle = "");

  enum class Level : std::uint8_t { section = 2, subsection = 3 };
  Page& heading(std::string_view text, Level level = Level::section);
  Page& paragraph(std::string_view text);
  Page& note(std::string_view text);  // a remark that must not be missed
  Page& headlines(std::span<const Headline> figures);
  Page& table(const Table& table);  // throws Error where a row has another number of cells than there are columns
  Page& figure(std::string_view svg, std::string_view caption = "");
  Page& code(std::string_view text);
  Page& key_values(std::span<const KeyValue> pairs);
  Page& details(std::string_view summary, const std::function<void(Page&)>& fill);  // collapsed until asked for
  Page& footer(std::string_view text);

  std::string html() const;

 private:
  std::string title_;
  std::string subtitle_;
  std::string footer_;
  std::string body_;
  std::set<std::string> anchors_;
};

}  // namespace quaver::report
