#include "report/svg.h"

#include <fmt/core.h>

#include "report/text.h"

namespace quaver::report {
namespace {

std::string_view anchor_attribute(Anchor anchor) {
  switch (anchor) {
    case Anchor::middle:
      return " text-anchor=\"middle\"";
    case Anchor::end:
      return " text-anchor=\"end\"";
    case Anchor::start:
      break;
  }
  return "";
}

std::string class_attribute(std::string_view classes) {
  return classes.empty() ? std::string() : fmt::format(" class=\"{}\"", classes);
}

std::string spaced(std::string_view attributes) {
  return attributes.empty() ? std::string() : fmt::format(" {}", attributes);
}

std::string box_attributes(const Box& box) {
  return fmt::format(" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"", coordinate(box.x), coordinate(box.y),
                     coordinate(box.width), coordinate(box.height));
}

std::string tooltip_element(std::string_view tooltip) {
  return tooltip.empty() ? std::string() : fmt::format("<title>{}</title>", escape(tooltip));
}

}  // namespace

std::string coordinate(double value) {
  std::string text = fmt::format("{:.1f}", value);
  if (text.ends_with(".0")) text.resize(text.size() - 2);
  return text == "-0" ? "0" : text;
}

SvgWriter::SvgWriter(std::string_view kind, double width, double height, std::string_view title,
                     std::string_view description, std::string_view attributes) {
  out_ = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart {}\" viewBox=\"0 0 {} {}\" width=\"{}\" height=\"{}\" "
      "role=\"img\" aria-label=\"{}\"{}><title>{}</title><desc>{}</desc>\n",
      kind, coordinate(width), coordinate(height), coordinate(width), coordinate(height), escape(title),
      spaced(attributes), escape(title), escape(description));
}

void SvgWriter::line(double x1, double y1, double x2, double y2, std::string_view classes) {
  out_ += fmt::format("<line x1=\"{}\" y1=\"{}\" x2=\"{}\" y2=\"{}\"{}/>\n", coordinate(x1), coordinate(y1),
                      coordinate(x2), coordinate(y2), class_attribute(classes));
}

void SvgWriter::rect(const Box& box, std::string_view classes, std::string_view tooltip, std::string_view attributes) {
  out_ += fmt::format("<rect{}{}{}>{}</rect>\n", box_attributes(box), class_attribute(classes), spaced(attributes),
                      tooltip_element(tooltip));
}

void SvgWriter::text(double x, double y, std::string_view text, std::string_view classes, Anchor anchor,
                     std::string_view attributes) {
  out_ += fmt::format("<text x=\"{}\" y=\"{}\"{}{}{}>{}</text>\n", coordinate(x), coordinate(y),
                      class_attribute(classes), anchor_attribute(anchor), spaced(attributes), escape(text));
}

void SvgWriter::fitted_text(const TextPlace& place, std::string_view text, std::string_view classes, Anchor anchor,
                            std::string_view attributes) {
  const std::string shown = shorten(text, place.room, place.font_size);
  out_ += fmt::format("<text x=\"{}\" y=\"{}\"{}{}{}>{}{}</text>\n", coordinate(place.x), coordinate(place.y),
                      class_attribute(classes), anchor_attribute(anchor), spaced(attributes), escape(shown),
                      shown == text ? "" : tooltip_element(text));
}

void SvgWriter::path(std::string_view data, std::string_view classes, std::string_view attributes,
                     std::string_view tooltip) {
  out_ += fmt::format("<path d=\"{}\"{}{}", data, class_attribute(classes), spaced(attributes));
  out_ += tooltip.empty() ? "/>\n" : fmt::format(">{}</path>\n", tooltip_element(tooltip));
}

void SvgWriter::dot(double x, double y, double radius, std::string_view classes) {
  out_ += fmt::format("<circle cx=\"{}\" cy=\"{}\" r=\"{}\"{}/>\n", coordinate(x), coordinate(y), coordinate(radius),
                      class_attribute(classes));
}

// A nested svg element clips by itself and, unlike a clipPath, needs no id that could collide on the page.
void SvgWriter::begin_clip(const Box& box) { out_ += fmt::format("<svg{}>\n", box_attributes(box)); }

void SvgWriter::end_clip() { out_ += "</svg>\n"; }

std::string SvgWriter::finish() { return std::move(out_) + "</svg>\n"; }

}  // namespace quaver::report
