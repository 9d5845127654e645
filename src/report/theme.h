// The look of reports: colors, type, and the small script that reads values off a line chart under the pointer.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quaver::report {

// Colors as CSS variables, for light, dark and print, and the classes that charts use.
std::string_view chart_css();

inline constexpr double font = 12;  // pixels, of the text in charts

// The rest of the page.
std::string_view page_css();

// Adds read-outs to line charts; the page is complete without it. The hash is what the page's content security policy
// lets run (base64 of its SHA-256), so that no other script can.
std::string_view chart_script();
std::string_view chart_script_hash();

// The classes that give a line, a bar or a cell its place in the palette, for example "s1 d1": colors and, for lines,
// dashes repeat with different periods, so that a dozen series stay distinct.
std::string series_classes(std::size_t index);
std::string fill_class(std::size_t index);

}  // namespace quaver::report
