// Recipes (quaver/recipe.h) under the settings of a config. Precision is data; no layer knows a recipe by name.
#pragma once

#include <string_view>

#include "precision/precision_config.h"
#include "quaver/recipe.h"

namespace quaver {

// One that is built in, or one of options.recipes, whose text says everything: of the options only gradient_format,
// wide_start and wide_tail change it. Throws Error with the known names when there is no such recipe.
Recipe make_recipe(std::string_view name, const PrecisionConfig& options);

bool is_built_in_recipe(std::string_view name);

// Every operand in this format of high precision, rounded to nearest.
Recipe all_in(Format format);

// Throws Error where an operand's spec has no meaning, or where two that meet in a GEMM are not rotated alike. `where`
// names the recipe in the message.
void check(const Recipe& recipe, const std::string& where);

// What follows from the operands of a recipe, whatever its name.
bool has_operand_in(const Recipe& recipe, Format format);
bool is_all_in(const Recipe& recipe, Format format);  // as all_in has it
bool is_high_precision(const Recipe& recipe);         // in every operand
bool have_same_operands(const Recipe& a, const Recipe& b);
int low_precision_bits(const Recipe& recipe);  // the most of an operand in low precision; 0: none is
// Operands of 8 bits or fewer, none of which has a scale: for unit-scaled models.
bool is_unscaled(const Recipe& recipe);

// The recipe of layers kept in high precision (the head) under that of the options: itself if it is one of high
// precision, else bf16.
std::string high_precision_recipe_for(const PrecisionConfig& options);

}  // namespace quaver
