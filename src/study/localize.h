// Sensitivity analysis: which operands of a model tolerate a low-precision format and which do not, and a plan that
// follows from it.
//
// With everything else in high precision, one operand (layer × role) at a time is stored as the recipe says, and its
// effect measured (sensitivity.h says how, and how loss and gradients become one number). Then a plan is sought that
// keeps the harm within a budget at the largest share of low-precision operations. A GEMM is in low precision only
// where both its operands are, so the roles of a layer are bought together: by harm per operation, cheapest first,
// which gives a chain of plans, each with more in low precision than the one before. Effects of single operands do not
// add up exactly, and are too small to be sure of on a few batches; so nothing rests on their sum. Plans of the chain
// are measured whole, by bisection, on other batches than the operands were, and the last one whose harm is below the
// budget with 95 % confidence is kept.
//
// Layers that this leaves in high precision, in part or whole, go down a ladder of recipes (ladder.h) in rounds of the
// same kind: on each rung every layer left is measured alone, and the chain that they give is added, by bisection, to
// what is kept already. A layer stays on the first rung where that holds; where none does, as it was. A round makes as
// many measurements as there are layers left, and two more than the binary logarithm of that.
//
// The measurement is of a model at one moment: a plan made early in training deserves to be made again later.
//
// Delayed and fixed scales are those of the run where it stores the operand so already; elsewhere the scale of the
// tensor itself stands for them, as that of a well-kept one would be.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "study/sensitivity.h"

namespace quaver {

// What is tried_together together in one measurement: fewer measurements, a coarser map.
enum class Grouping : std::uint8_t { site, layer, block };

struct LocalizeOptions {
  Size batches = 4;
  Size warmup_steps = 20;  // of training before anything is measured
  double budget = 0.0025;  // share of the loss
  Grouping grouping = Grouping::site;
  StudyProgress progress = {};
};

// Where an operand is in the plan proposed: as it was tried, in another recipe of low precision, or in neither.
enum class Placement : std::uint8_t { high_precision, on_ladder, as_tried };

struct SiteSensitivity {
  std::string site;
  std::string layer;
  Role role = Role::x;
  std::string group = {};  // what was tried together: the site itself, its layer or its block
  std::string recipe;      // that was tried; where it was not, the high-precision one
  bool tried = false;      // false: high precision in the recipe's own plan
  Placement placement = Placement::high_precision;
  std::string ladder_recipe = {};  // on the ladder: the recipe there
  Effect effect = {};              // of its group
  GradientMatch own = {};          // of the layer's own weight gradient
  double sqnr_db = 0;
  double underflow_percent = 0;
  double harm = 0;         // likeliest, a share of the loss
  double flops_share = 0;  // of the model's GEMMs, those that read this operand
};

// What a cast made of an operand.
struct CastQuality {
  double underflow_percent = 0;
  double sqnr_db = 0;
};

// A layer (by blocks: its layers) on a rung of the ladder, with everything else in high precision.
struct LadderTrial {
  std::string group;
  std::string recipe;  // of the operand
  std::string site;    // the most harmful operand; tried together, the one to which the rung makes most difference
  CastQuality before;  // in the recipe's own plan
  CastQuality after;
  double harm_before = 0;  // of that operand, or of what it was tried with
  double harm_after = 0;   // of all of them on the rung
  bool taken = false;      // into the plan proposed
};

// A plan measured whole.
struct PlanTrial {
  Size low_precision_sites = 0;
  Size ladder_sites = 0;           // of them, those that are on the ladder
  double low_precision_share = 0;  // of the matrix products' operations
  Effect effect;
  double harm = 0;    // at most
  bool holds = true;  // within the budget
};

struct Localization {
  std::string recipe;
  std::string source;
  std::string hash;  // of the config
  Size step = 0;     // of the weights
  Size batches = 0;
  Size tokens = 0;  // images where there are no tokens
  std::string unit = "tokens";
  Grouping grouping = Grouping::site;
  double budget = 0;
  double baseline_loss = 0;
  double baseline_error = 0;                     // standard error over batches
  std::optional<double> baseline_accuracy = {};  // of a classifier
  std::vector<SiteSensitivity> sites;            // in the plan's order
  std::vector<std::size_t> ranking;              // indices of `sites` that were tried, most harmful first
  std::vector<LadderTrial> ladder;               // rung by rung
  std::vector<PlanTrial> trials;  // in the order they were made; the first has all the recipe's sites in low precision
  PlanTrial chosen;
  std::map<std::string, std::string> layers;  // the plan proposed, as precision.layers: layer or site → recipe
  RecipeTable recipes;                        // those of `layers` that neither the program nor the config has
};

// Throws Error where the config's recipe has nothing in low precision, or the model's loss is not finite.
Localization localize(Subject& subject, const LocalizeOptions& options);

// The [precision] part of a config as a file of its own, with the measurements as comments. `document` is where
// localization.json is kept.
std::string to_plan_file(const Localization& localization, const PrecisionConfig& precision,
                         const std::filesystem::path& document);

std::string to_json(const Localization& localization);

// "x: underflow 97.4 % → 0.0 %, SQNR 31.2 → 25.3 dB": what a rung does to the operand.
std::string difference_on_ladder(const LadderTrial& trial);

std::string_view name_of(Grouping grouping);

}  // namespace quaver
