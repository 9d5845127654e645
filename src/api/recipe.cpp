#include "quaver/recipe.h"

#include <algorithm>

#include "api/settings.h"

#include "config/load.h"
#include "precision/plan.h"
#include "quaver/error.h"

namespace quaver {

PrecisionConfig precision_of(std::string_view recipe, const std::vector<std::string>& settings) {
  ConfigSources sources;
  if (!recipe.empty()) sources.flags.push_back("precision.recipe=" + std::string(recipe));
  for (const std::string& setting : settings) {
    const std::size_t name = std::min(setting.find_first_not_of('-'), setting.size());
    const std::string_view key = std::string_view(setting).substr(name);
    if (!key.starts_with("precision.") && !key.starts_with("recipes.")) {
      throw Error("'" + setting + "' is no setting of the section precision",
                  "write precision.key=value, or recipes.NAME={ … } to define a recipe");
    }
    sources.flags.push_back(setting);
  }
  return load_config(sources).precision;
}

Recipe find_recipe(std::string_view name, const std::vector<std::string>& settings) {
  return make_recipe(name, precision_of(name, settings));
}

std::string describe(const Recipe& recipe) {
  std::string text;
  for (const Role role : roles) {
    const SiteSpec& spec = recipe.of(role);
    std::string line(name_of(role));
    line.resize(4, ' ');
    text += line + "rowwise " + describe(spec.rows) + ", columnwise " + describe(spec.columns) + '\n';
  }
  return text;
}

Plan plan_of(const std::vector<LayerShape>& layers, const std::vector<std::string>& settings) {
  return make_plan(precision_of("", settings), layers);
}

}  // namespace quaver
