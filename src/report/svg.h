// Writes SVG elements into a string. Used by the charts; classes refer to the style sheet in theme.h.
#pragma once

#include <string>
#include <string_view>

namespace quaver::report {

// A coordinate with at most one decimal.
std::string coordinate(double value);

enum class Anchor { start, middle, end };

struct Box {
  double x = 0;
  double y = 0;
  double width = 0;
  double height = 0;
};

// Where a text stands, and the room it has.
struct TextPlace {
  double x = 0;
  double y = 0;
  double room = 0;
  double font_size = 0;
};

class SvgWriter {
 public:
  // kind becomes a class of the root element, attributes (already safe) follow it.
  SvgWriter(std::string_view kind, double width, double height, std::string_view title, std::string_view description,
            std::string_view attributes = "");

  void line(double x1, double y1, double x2, double y2, std::string_view classes);
  // tooltip: shown by the browser on hovering; none where empty.
  void rect(const Box& box, std::string_view classes, std::string_view tooltip = "", std::string_view attributes = "");
  void text(double x, double y, std::string_view text, std::string_view classes = "", Anchor anchor = Anchor::start,
            std::string_view attributes = "");
  // Text cut to the room there is, with the whole of it as tooltip.
  void fitted_text(const TextPlace& place, std::string_view text, std::string_view classes = "",
                   Anchor anchor = Anchor::start, std::string_view attributes = "");
  void path(std::string_view data, std::string_view classes, std::string_view attributes = "",
            std::string_view tooltip = "");
  void dot(double x, double y, double radius, std::string_view classes);

  // A nested drawing with its own origin that cuts off what leaves it; closes with end_clip().
  void begin_clip(const Box& box);
  void end_clip();

  std::string finish();

 private:
  std::string out_;
};

}  // namespace quaver::report
