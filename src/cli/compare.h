// The same model, data and seeds under several recipes, as a table for the terminal, as an HTML report and as JSON.
#pragma once

#include <string>
#include <vector>

#include "cli/comparison.h"

namespace quaver {

std::string comparison_table(const Comparison& comparison);
std::string comparison_json(const Comparison& comparison);
std::string comparison_report(const std::vector<Contender>& contenders, const Comparison& comparison);

// The rows of the table, titles first: recipes, and below each its seeds where it has several and they are asked for.
enum class SeedRows : std::uint8_t { shown, left_out };
std::vector<std::vector<std::string>> comparison_rows(const Comparison& comparison, SeedRows seeds);

// What each recipe needed to reach the base's final training loss, titles first; empty where there is nothing to
// compare. The note says what that means.
std::vector<std::vector<std::string>> time_to_loss_rows(const Comparison& comparison, SeedRows seeds);
std::string time_to_loss_note(const Comparison& comparison);

// What the rows cannot say: the base, what the loss is, how means are taken, seeds that did not complete.
std::vector<std::string> comparison_notes(const Comparison& comparison);

}  // namespace quaver
