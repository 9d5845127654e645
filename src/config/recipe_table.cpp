#include "config/recipe_table.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <utility>

#include "config/value_text.h"
#include "quaver/error.h"

namespace quaver {
namespace {

std::string side_text(const SiteSpec& spec) {
  if (spec.rows == spec.columns) return toml_string(describe(spec.rows));
  return fmt::format("{{ rowwise = {}, columnwise = {} }}", toml_string(describe(spec.rows)),
                     toml_string(describe(spec.columns)));
}

// "x = …" and so on; what is as it would be without a word is left out.
std::vector<std::string> assignments(const Recipe& recipe) {
  std::vector<std::string> lines;
  if (!recipe.summary.empty()) lines.push_back("summary = " + toml_string(recipe.summary));
  lines.push_back("x = " + side_text(recipe.x));
  lines.push_back("w = " + side_text(recipe.w));
  lines.push_back("dy = " + side_text(recipe.dy));
  if (recipe.wide_start != 0) lines.push_back("wide_start = " + toml_value(recipe.wide_start));
  if (recipe.wide_tail != 0) lines.push_back("wide_tail = " + toml_value(recipe.wide_tail));
  return lines;
}

}  // namespace

const std::vector<std::string>& recipe_keys() {
  static const std::vector<std::string> keys{"summary", "x", "w", "dy", "wide_start", "wide_tail"};
  return keys;
}

// Names become parts of flags, of lists with commas and of folders.
void check_recipe_name(std::string_view name, const std::string& where) {
  constexpr std::size_t longest = 64;
  const auto is_plain = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
  };
  if (name.empty() || name.size() > longest || name.front() == '-' || !std::ranges::all_of(name, is_plain)) {
    throw Error(fmt::format("{}: recipes: expected the name of a recipe, found {}", where, quoted_excerpt(name)),
                "use letters, digits, - and _, at most 64 of them");
  }
  if (is_built_in_recipe(name)) {
    throw Error(
        fmt::format("{}: recipes.{}: expected a name of its own, found that of a recipe that is built in", where, name),
        fmt::format("choose another name, such as my-{}", name));
  }
}

std::string recipe_toml(const Recipe& recipe) {
  return fmt::format("[recipes.{}]\n{}\n", recipe.name, fmt::join(assignments(recipe), "\n"));
}

std::string inline_recipe(const Recipe& recipe) {
  return fmt::format("{{ {} }}", fmt::join(assignments(recipe), ", "));
}

}  // namespace quaver
