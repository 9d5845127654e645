// A small strict reader of markup for the tests: tags must nest and close, attributes must be quoted, text must be
// escaped. It accepts the XML that the charts are made of and the HTML of a page with its void elements.
#pragma once

#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quaver {

struct Element {
  std::string name;
  std::map<std::string, std::string> attributes;
  std::string text;    // directly inside, as written
  std::string parent;  // name of the element around it
};

struct Markup {
  std::vector<Element> elements;
  std::string error;  // empty where the text is well formed

  std::vector<Element> named(std::string_view name) const {
    std::vector<Element> found;
    for (const Element& element : elements) {
      if (element.name == name) found.push_back(element);
    }
    return found;
  }
  std::vector<Element> with_class(std::string_view wanted) const {
    std::vector<Element> found;
    for (const Element& element : elements) {
      const auto classes = element.attributes.find("class");
      if (classes != element.attributes.end() &&
          (" " + classes->second + " ").find(" " + std::string(wanted) + " ") != std::string::npos) {
        found.push_back(element);
      }
    }
    return found;
  }
};

inline Markup read_markup(std::string_view text) {
  Markup markup;
  std::vector<std::size_t> open;
  const auto fail = [&](const std::string& why, std::size_t at) {
    markup.error = why + " at " + std::to_string(at) + ": " + std::string(text.substr(at, 60));
    return markup;
  };
  std::size_t at = text.starts_with("<!DOCTYPE html>") ? 15 : 0;
  while (at < text.size()) {
    if (text[at] != '<') {
      if (text[at] == '>') return fail("unescaped >", at);
      if (text[at] == '&' && text.substr(at, 10).find(';') == std::string_view::npos) return fail("bare &", at);
      if (!open.empty()) markup.elements[open.back()].text += text[at];
      ++at;
      continue;
    }
    if (text.substr(at, 2) == "</") {
      const std::size_t end = text.find('>', at);
      const std::string name(text.substr(at + 2, end - at - 2));
      if (open.empty() || markup.elements[open.back()].name != name) return fail("wrong closing tag", at);
      open.pop_back();
      at = end + 1;
      continue;
    }
    Element element;
    std::size_t i = at + 1;
    while (i < text.size() && (isalnum(static_cast<unsigned char>(text[i])) != 0)) element.name += text[i++];
    if (element.name.empty()) return fail("a tag without a name", at);
    while (i < text.size() && text[i] == ' ') {
      const std::size_t equals = text.find("=\"", i);
      const std::size_t close = text.find('"', equals + 2);
      if (equals == std::string_view::npos || close == std::string_view::npos) return fail("bad attribute", i);
      const std::string key(text.substr(i + 1, equals - i - 1));
      if (key.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-:") !=
          std::string::npos) {
        return fail("bad attribute name", i);
      }
      const std::string value(text.substr(equals + 2, close - equals - 2));
      if (value.find('<') != std::string::npos) return fail("< in an attribute", i);
      if (!element.attributes.emplace(key, value).second) return fail("attribute twice", i);
      i = close + 1;
    }
    if (!open.empty()) element.parent = markup.elements[open.back()].name;
    const bool closed = text.substr(i, 2) == "/>";
    if (!closed && (i >= text.size() || text[i] != '>')) return fail("a tag that does not end", i);
    at = i + (closed ? 2 : 1);
    const std::string name = element.name;
    if (name == "style" || name == "script") {
      const std::size_t end = text.find("</" + name + ">", at);
      if (end == std::string_view::npos) return fail("unclosed " + name, at);
      element.text = text.substr(at, end - at);
      at = end + name.size() + 3;
      markup.elements.push_back(element);
      continue;
    }
    markup.elements.push_back(element);
    if (!closed && name != "meta") open.push_back(markup.elements.size() - 1);
  }
  if (!open.empty()) markup.error = "unclosed " + markup.elements[open.back()].name;
  return markup;
}

// Where an SVG path that is made of lines goes.
inline std::vector<std::pair<double, double>> points(const Element& path) {
  std::string data = path.attributes.at("d");
  for (char& c : data) c = c == 'M' || c == 'L' ? ' ' : c;
  std::istringstream numbers(data);
  std::vector<std::pair<double, double>> found;
  for (double x = 0, y = 0; numbers >> x >> y;) found.emplace_back(x, y);
  return found;
}

}  // namespace quaver
