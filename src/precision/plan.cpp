#include "precision/plan.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <iterator>
#include <set>

#include "quaver/error.h"

namespace quaver {

namespace {

constexpr std::string_view between_pattern_and_recipe = " in ";  // of a key of precision.layer_speeds

struct Override {
  std::string layer;  // pattern
  std::string role;   // "" for all
  std::string recipe;
  std::string text;  // as the user wrote it
  bool used = false;
};

std::vector<Override> parse_overrides(const PrecisionConfig& config) {
  std::vector<Override> overrides;
  for (const auto& [pattern, recipe] : config.layers) {
    const auto slash = pattern.rfind('/');
    const bool with_role = slash != std::string::npos;
    overrides.push_back(
        {with_role ? pattern.substr(0, slash) : pattern, with_role ? pattern.substr(slash + 1) : "", recipe, pattern});
  }
  return overrides;
}

void check_all_used(const std::vector<Override>& overrides, const std::vector<LayerShape>& layers) {
  for (const Override& entry : overrides) {
    if (entry.used) continue;
    std::string some;
    for (std::size_t i = 0; i < layers.size() && i < 5; ++i) some += (i > 0 ? ", " : "") + layers[i].name;
    some += layers.size() > 5 ? ", …, " + layers.back().name : "";
    throw Error("precision.layers: the pattern \"" + entry.text + "\" matches no layer",
                "layers are named " + some + "; a role (/x, /w, /dy) may follow");
  }
}

// Who chose a site's recipe.
enum class ChosenBy : std::uint8_t { recipe, exception, pattern };

struct Choice {
  std::string recipe;
  std::string reason;
  ChosenBy by = ChosenBy::exception;
};

// Chooses the recipes of sites: as the config's recipe says, with its exceptions, unless a pattern says otherwise.
class Chooser {
 public:
  Chooser(const PrecisionConfig& config, const std::vector<LayerShape>& layers)
      : config_(config), overrides_(parse_overrides(config)) {
    Size blocks = 0;
    for (const LayerShape& layer : layers) blocks = std::max(blocks, layer.block + 1);
    const auto part = [blocks](double share) {
      return static_cast<Size>(std::ceil(share * static_cast<double>(blocks) - 1e-9));
    };
    const Recipe recipe = make_recipe(config.recipe, config);
    start_end_ = part(recipe.wide_start);
    tail_begin_ = blocks - part(recipe.wide_tail);
  }

  Choice choose(const LayerShape& layer, Role role) {
    Choice choice = by_default(layer);
    for (Override& entry : overrides_) {
      if (layer.adaptation == Adaptation::adapter) continue;
      if (!matches(entry.layer, layer.name) || (!entry.role.empty() && entry.role != name_of(role))) continue;
      entry.used = true;
      choice = {entry.recipe, "pattern \"" + entry.text + "\"", ChosenBy::pattern};
    }
    return choice;
  }

  const std::vector<Override>& overrides() const { return overrides_; }

 private:
  Choice by_default(const LayerShape& layer) const {
    const std::string high = high_precision_recipe_for(config_);
    if (layer.adaptation == Adaptation::adapter) return {high, "adapter: always in high precision"};
    if (layer.high_precision) return {high, "kept in high precision by default"};
    if (layer.block >= 0 && layer.block < start_end_) return {"bf16", "in the first blocks"};
    if (layer.block >= 0 && layer.block >= tail_begin_) return {"bf16", "in the last blocks"};
    return {config_.recipe, "recipe", ChosenBy::recipe};
  }

  const PrecisionConfig& config_;
  Size start_end_;   // blocks before it are kept in bf16,
  Size tail_begin_;  // and so are those from it on
  std::vector<Override> overrides_;
};

// What precision.only_where_faster makes of a choice of the recipe.
Choice if_faster(Choice choice, const PrecisionConfig& config, const LayerShape& layer) {
  if (config.only_where_faster.empty() || choice.by != ChosenBy::recipe ||
      is_high_precision(make_recipe(config.recipe, config))) {
    return choice;
  }
  const std::optional<double> speed = layer_speed(config, layer.name);
  if (!speed) {
    throw Error(
        "precision.only_where_faster: the speed of " + layer.name + " in " + config.recipe + " is not known here",
        "a run reads it from the benchmark; elsewhere set precision.layer_speeds, or leave the rule out");
  }
  if (*speed > 1) return choice;
  return {"bf16", fmt::format("not faster: {} is {:.3g}× as fast as bf16 here", config.recipe, *speed)};
}

// What an adapter multiplies x and dy by is not rotated.
void leave_unrotated_for_adapters(Plan& plan, const std::vector<LayerShape>& layers) {
  for (std::size_t layer = 0; layer < layers.size(); ++layer) {
    if (layers[layer].adaptation != Adaptation::adapted) continue;
    for (const Role role : roles) {
      SiteSpec& spec = plan.rows[site_index(layer, role)].spec;
      spec.rows.rotation = spec.columns.rotation = Rotation::none;
    }
  }
}

Format higher_precision(Format a, Format b) { return info(a).storage_bits >= info(b).storage_bits ? a : b; }

}  // namespace

std::string_view name_of(Role role) {
  switch (role) {
    case Role::x:
      return "x";
    case Role::w:
      return "w";
    case Role::dy:
      break;
  }
  return "dy";
}

std::string site_name(std::string_view layer, Role role) { return fmt::format("{}/{}", layer, name_of(role)); }

bool matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;
  std::size_t resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || (pattern[p] != '*' && pattern[p] == name[n]))) {
      ++p;
      ++n;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

std::vector<std::string> patterns_in(std::string_view list) {
  std::vector<std::string> patterns;
  while (!list.empty()) {
    const std::string_view next = list.substr(0, list.find(','));
    list.remove_prefix(std::min(next.size() + 1, list.size()));
    const std::size_t first = next.find_first_not_of(' ');
    const std::size_t last = next.find_last_not_of(' ');
    patterns.emplace_back(first == std::string_view::npos ? "" : next.substr(first, last - first + 1));
  }
  return patterns;
}

void agree_on_rotation(SiteSpec& x, SiteSpec& w, SiteSpec& dy) {
  const auto agree = [](QuantSpec& a, QuantSpec& b) {
    if (a.rotation != b.rotation) a.rotation = b.rotation = Rotation::none;
  };
  agree(x.rows, w.rows);
  agree(dy.rows, w.columns);
  agree(dy.columns, x.columns);
}

void agree_on_rotation(Plan& plan) {
  for (std::size_t layer = 0; site_index(layer, Role::x) < plan.rows.size(); ++layer) {
    const auto spec = [&](Role role) -> SiteSpec& { return plan.rows[site_index(layer, role)].spec; };
    agree_on_rotation(spec(Role::x), spec(Role::w), spec(Role::dy));
  }
}

const PlanRow& Plan::at(std::string_view site) const {
  for (const PlanRow& row : rows) {
    if (row.site == site) return row;
  }
  throw Error("the plan has no site '" + std::string(site) + "'", "the plan belongs to another model");
}

Plan make_plan(const PrecisionConfig& config, const std::vector<LayerShape>& layers) {
  Chooser chooser(config, layers);
  Plan plan;
  for (const LayerShape& layer : layers) {
    for (const Role role : roles) {
      const Choice choice = if_faster(chooser.choose(layer, role), config, layer);
      PlanRow row{site_name(layer.name, role), layer.name, role, choice.recipe, choice.reason, {}};
      row.spec = make_recipe(choice.recipe, config).of(role);
      check(row.spec, row.site);
      plan.rows.push_back(std::move(row));
    }
  }
  check_all_used(chooser.overrides(), layers);
  agree_on_rotation(plan);
  leave_unrotated_for_adapters(plan, layers);
  return plan;
}

std::vector<LayerShape> layers_in_recipe(const PrecisionConfig& config, const std::vector<LayerShape>& layers) {
  if (is_high_precision(make_recipe(config.recipe, config))) return {};
  Chooser chooser(config, layers);
  std::vector<LayerShape> found;
  std::ranges::copy_if(layers, std::back_inserter(found), [&](const LayerShape& layer) {
    return std::ranges::any_of(roles, [&](Role role) { return chooser.choose(layer, role).by == ChosenBy::recipe; });
  });
  return found;
}

std::string speed_key(std::string_view pattern, std::string_view recipe) {
  return fmt::format("{}{}{}", pattern, between_pattern_and_recipe, recipe);
}

std::optional<double> layer_speed(const PrecisionConfig& config, std::string_view layer) {
  const std::string end = speed_key("", config.recipe);
  for (const auto& [key, speed] : config.layer_speeds) {
    const std::string_view text = key;
    if (text.ends_with(end) && matches(text.substr(0, text.size() - end.size()), layer)) return speed;
  }
  return std::nullopt;
}

std::string to_toml(const Plan& plan) {
  std::string text =
      "# How every operand is stored: rows are read by the first product of its role, columns by the second.\n";
  for (const PlanRow& row : plan.rows) {
    text += fmt::format("\n[\"{}\"]\nrecipe = \"{}\"\nreason = '{}'\nrows = \"{}\"\ncolumns = \"{}\"\n", row.site,
                        row.recipe, row.reason, describe(row.spec.rows), describe(row.spec.columns));
  }
  return text;
}

std::string summary(const Plan& plan) {
  std::vector<std::pair<std::string, std::set<std::string>>> groups;  // recipe and reason → layers, in order
  for (const PlanRow& row : plan.rows) {
    const std::string key = row.recipe + " (" + row.reason + ")";
    auto found = std::find_if(groups.begin(), groups.end(), [&](const auto& group) { return group.first == key; });
    if (found == groups.end()) found = groups.insert(groups.end(), {key, {}});
    found->second.insert(row.layer);
  }
  std::string text;
  for (const auto& [key, layers] : groups) {
    text += fmt::format("  {}: {} layer{}", key, layers.size(), layers.size() == 1 ? "" : "s");
    text += layers.size() <= 3 ? fmt::format(" ({})\n", fmt::join(layers, ", ")) : "\n";
  }
  return text;
}

std::map<std::string, double> flops_by_format(const Plan& plan, const std::vector<LayerShape>& layers) {
  std::map<std::string, double> shares;
  double total = 0;
  const auto add = [&](const QuantSpec& a, const QuantSpec& b, double flops) {
    shares[std::string(info(higher_precision(a.format, b.format)).name)] += flops;
    total += flops;
  };
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const LayerShape& layer = layers[i];
    const SiteSpec& x = plan.rows.at(site_index(i, Role::x)).spec;
    const SiteSpec& w = plan.rows.at(site_index(i, Role::w)).spec;
    const SiteSpec& dy = plan.rows.at(site_index(i, Role::dy)).spec;
    const double flops = static_cast<double>(layer.pixels * layer.in) * static_cast<double>(layer.out);
    add(x.rows, w.rows, flops);
    add(dy.rows, w.columns, flops);
    add(dy.columns, x.columns, flops);
  }
  for (auto& [format, share] : shares) share /= total > 0 ? total : 1;
  return shares;
}

double low_precision_share(const std::map<std::string, double>& shares) {
  double sum = 0;
  for (const auto& [format, share] : shares) sum += is_low_precision(parse_format(format)) ? share : 0.0;
  return sum;
}

}  // namespace quaver
