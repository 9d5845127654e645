#include "report/page.h"

#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "quaver/error.h"
#include "report/text.h"
#include "report/theme.h"

namespace quaver::report {
namespace {

std::string_view align_class(Align align) {
  switch (align) {
    case Align::center:
      return " class=\"c\"";
    case Align::right:
      return " class=\"r\"";
    case Align::left:
      break;
  }
  return "";
}

// Letters and digits of a heading, joined by hyphens: what a link to it ends in.
std::string slug(std::string_view text) {
  std::string made;
  for (const char c : text) {
    if ((c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      made += c;
    } else if (c >= 'A' && c <= 'Z') {
      made += static_cast<char>(c - 'A' + 'a');
    } else if (!made.empty() && made.back() != '-') {
      made += '-';
    }
  }
  while (!made.empty() && made.back() == '-') made.pop_back();
  return made.empty() ? "section" : made;
}

std::string optional_element(std::string_view name, std::string_view text) {
  return text.empty() ? std::string() : fmt::format("<{}>{}</{}>", name, escape(text), name);
}

}  // namespace

Page::Page(std::string title, std::string subtitle) : title_(std::move(title)), subtitle_(std::move(subtitle)) {}

Page& Page::heading(std::string_view text, Level level) {
  const std::string base = slug(text);
  std::string anchor = base;
  for (int i = 2; !anchors_.insert(anchor).second; ++i) anchor = fmt::format("{}-{}", base, i);
  const int number = static_cast<int>(level);
  body_ += fmt::format("<h{} id=\"{}\">{}</h{}>\n", number, anchor, escape(text), number);
  return *this;
}

Page& Page::paragraph(std::string_view text) {
  body_ += fmt::format("<p>{}</p>\n", escape(text));
  return *this;
}

Page& Page::note(std::string_view text) {
  body_ += fmt::format("<p class=\"note\" role=\"note\">{}</p>\n", escape(text));
  return *this;
}

Page& Page::headlines(std::span<const Headline> figures) {
  body_ += "<ul class=\"headline\">\n";
  for (const Headline& figure : figures) {
    body_ += fmt::format("<li><span>{}</span><strong>{}</strong>{}</li>\n", escape(figure.label), escape(figure.value),
                         optional_element("span", figure.remark));
  }
  body_ += "</ul>\n";
  return *this;
}

Page& Page::table(const Table& table) {
  body_ +=
      fmt::format("<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"{}\"><table>{}<thead><tr>",
                  escape(table.caption.empty() ? "Table" : table.caption), optional_element("caption", table.caption));
  for (const Column& column : table.columns) {
    body_ += fmt::format("<th scope=\"col\"{}>{}</th>", align_class(column.align), escape(column.name));
  }
  body_ += "</tr></thead><tbody>\n";
  for (std::size_t r = 0; r < table.rows.size(); ++r) {
    const auto& row = table.rows[r];
    if (row.size() != table.columns.size()) {
      throw Error(fmt::format("table '{}': row {} has {} cells for {} columns", table.caption, r + 1, row.size(),
                              table.columns.size()),
                  "give every row one cell per column");
    }
    body_ += table.strong_rows.contains(r) ? "<tr class=\"strong\">" : "<tr>";
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string_view align = align_class(table.columns[c].align);
      body_ += c == 0 ? fmt::format("<th scope=\"row\"{}>{}</th>", align, escape(row[c]))
                      : fmt::format("<td{}>{}</td>", align, escape(row[c]));
    }
    body_ += "</tr>\n";
  }
  body_ += "</tbody></table></div>\n";
  return *this;
}

Page& Page::figure(std::string_view svg, std::string_view caption) {
  body_ += fmt::format("<figure>{}{}</figure>\n", svg, optional_element("figcaption", caption));
  return *this;
}

Page& Page::code(std::string_view text) {
  body_ += fmt::format("<pre tabindex=\"0\"><code>{}</code></pre>\n", escape(text));
  return *this;
}

Page& Page::key_values(std::span<const KeyValue> pairs) {
  body_ += "<dl>\n";
  for (const KeyValue& pair : pairs) {
    body_ += fmt::format("<dt>{}</dt><dd>{}</dd>\n", escape(pair.key), escape(pair.value));
  }
  body_ += "</dl>\n";
  return *this;
}

Page& Page::details(std::string_view summary, const std::function<void(Page&)>& fill) {
  body_ += fmt::format("<details><summary>{}</summary>\n", escape(summary));
  fill(*this);
  body_ += "</details>\n";
  return *this;
}

Page& Page::footer(std::string_view text) {
  footer_ = text;
  return *this;
}

std::string Page::html() const {
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'sha256-{}'; base-uri 'none'; form-action 'none'\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"referrer\" content=\"no-referrer\">\n"
      "<title>{}</title>\n<style>{}{}</style>\n</head>\n<body>\n<main>\n<header><h1>{}</h1>{}</header>\n{}{}</main>\n"
      "<script>{}</script>\n</body>\n</html>\n",
      chart_script_hash(), escape(title_), chart_css(), page_css(), escape(title_), optional_element("p", subtitle_),
      body_, optional_element("footer", footer_), chart_script());
}

}  // namespace quaver::report
