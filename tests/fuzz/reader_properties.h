// What must hold for any bytes given to a reader: they are refused with an Error, or what was read is sound. The
// libFuzzer targets and the test that runs their corpora share these.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "data/documents.h"
#include "engine/gemm_cache_file.h"
#include "interop/hf_config.h"
#include "interop/hf_layout.h"
#include "interop/hf_weights.h"
#include "interop/quantization_config.h"
#include "precision/plan.h"
#include "precision/precision_config.h"
#include "precision/recipe.h"
#include "precision/scale_book.h"
#include "quaver/error.h"
#include "serve/application.h"
#include "store/histograms.h"
#include "store/numerics_table.h"
#include "store/schema.h"
#include "study/calibrate.h"
#include "train/localization_map.h"
#include "train/metrics.h"
#include "train/provenance.h"
#include "train/run_record.h"
#include "train/trainer_state.h"

namespace quaver::test {

template <class Read>
void allow_refusal(const Read& read) {
  try {
    read();
  } catch (const Error& error) {
    if (std::string_view(error.what()).empty()) std::abort();
  }
}

inline void require(bool holds) {
  if (!holds) std::abort();
}

inline std::vector<LayerShape> two_layers() { return {{"a", 8, 8, 0, false}, {"b.c", 8, 8, 1, false}}; }

inline ScaleBook small_book() {
  static const Plan plan = [] {
    PrecisionConfig precision;
    precision.recipe = "fp8-delayed";
    return make_plan(precision, two_layers());
  }();
  ScaleBook book({.history = 4});
  for (const PlanRow& row : plan.rows) book.add(row);
  return book;
}

// A book that was restored is written and restored to the same.
inline void fuzz_scale_book(std::string_view text) {
  allow_refusal([&] {
    ScaleBook book = small_book();
    book.from_json(text, ScaleBook::Import::everything, 3);
    const std::string written = book.to_json();
    ScaleBook again = small_book();
    require(again.from_json(written, ScaleBook::Import::everything, 3).empty());
    require(again.to_json() == written);
  });
  allow_refusal([&] {
    ScaleBook book = small_book();
    book.from_json(text, ScaleBook::Import::scales_only, 3);
    for (const auto& entry : book.entries()) {
      require(std::isfinite(entry->site.scale) && entry->site.scale >= 0 && entry->history.size() <= 4);
    }
  });
  allow_refusal([&] { require(compare_books(text, text).empty()); });
  allow_refusal([&] { compare_books(text, small_book().to_json()); });
}

inline void fuzz_scale_drift(std::string_view text) {
  Calibration now;
  for (const PlanRow& row : make_plan({}, two_layers()).rows) {
    SiteRange range;
    range.site = row.site;
    range.layer = row.layer;
    range.role = row.role;
    range.spec = row.spec;
    range.seen.amax = 3;
    now.sites.push_back(range);
  }
  allow_refusal([&] {
    for (const SiteDrift& site : drift_since(text, "input", now).sites) require(std::isfinite(site.binades));
  });
}

// What is kept of a log can be read, line by line, and is kept again; no line is lost but those of later steps.
inline void fuzz_metrics_log(std::string_view text) {
  const MetricsHistory history = read_metrics(text, 3);
  const MetricsHistory again = read_metrics(history.kept, 3);
  require(again.kept == history.kept && again.unreadable_lines == 0);
  require(read_metrics(history.unreadable, 3).kept.empty());
  const auto lines_in = [](std::string_view all) { return std::count(all.begin(), all.end(), '\n'); };
  require(lines_in(history.unreadable) == history.unreadable_lines);
  require(lines_in(history.kept) + lines_in(history.unreadable) <= history.lines);
}

// A state that was read is written and read to the same.
inline void fuzz_trainer_state(std::string_view text) {
  allow_refusal([&] {
    const TrainerState state = parse_state(text, 3, "input");
    require(state.step == 3 && state.updates <= 3);
    const std::string written = to_json(state);
    require(to_json(parse_state(written, 3, "again")) == written);
  });
}

inline void fuzz_provenance(std::string_view text) {
  allow_refusal([&] {
    const std::string written = to_json(parse_provenance(text, "input"));
    require(to_json(parse_provenance(written, "again")) == written);
  });
}

inline void fuzz_localization_map(std::string_view text) {
  allow_refusal([&] { check_localization_map(text, "input"); });
}

// An id out of a file is one that the dashboard answers about; one out of an address leads nowhere else.
inline void fuzz_run_id(std::string_view text) {
  if (const auto id = parse_run_id(text)) {
    const auto target = find_target("/api/runs/" + *id);
    require(target && target->route == Route::run && target->run == *id);
  }
  if (const auto target = find_target("/api/runs/" + std::string(text))) {
    require(!target->run.empty() && target->run.size() <= 64);
    require(target->run.find_first_of("./\\%\n") == std::string::npos && target->run.find('\0') == std::string::npos);
  }
}

inline void fuzz_gemm_cache(std::string_view text) {
  const GemmChoices choices = parse_gemm_choices(text);
  for (const auto& [key, choice] : choices) require(!key.empty() && choice.workspace <= gemm_workspace_limit);
  require(parse_gemm_choices(render_gemm_choices(choices)) == choices);
}

// A config.json that was read describes a model, and is written and read to the same.
inline void fuzz_hf_config(std::string_view text) {
  allow_refusal([&] {
    const ModelConfig model = resolved(parse_hf_config(text, "input"));
    require(!hf_tensors(model).empty());
    const std::string written = render_hf_config(model, "float32");
    require(render_hf_config(resolved(parse_hf_config(written, "again")), "float32") == written);
    const std::string kept = render_hf_config(model, "float32", text);
    require(render_hf_config(resolved(parse_hf_config(kept, "again")), "float32", text) == kept);
  });
}

// The files of an index lie in its folder.
inline void fuzz_hf_index(std::string_view text) {
  allow_refusal([&] {
    for (const auto& [tensor, file] : parse_hf_index(text, "input")) {
      require(file.ends_with(".safetensors") && file.find_first_of("/\\") == std::string::npos);
    }
  });
}

// The first byte chooses a quantization, the others are model.safetensors: every weight is refused, or read whole.
inline void fuzz_hf_quantized(const std::filesystem::path& folder, std::string_view text) {
  if (text.empty()) return;
  const auto kind = static_cast<std::size_t>(static_cast<unsigned char>(text.front())) % 5;
  const WeightFormat format = all_weight_formats[all_weight_formats.size() - 5 + kind];
  std::ofstream(folder / "config.json") << with_quantization("{}", {.format = format, .high_precision = {}});
  std::ofstream(folder / "model.safetensors", std::ios::binary) << text.substr(1);
  allow_refusal([&] {
    const HfWeights weights(folder);
    for (const TensorEntry& tensor : weights.files().front().tensors()) {
      const bool packed = tensor.name.ends_with("_packed");
      const std::string name = packed ? tensor.name.substr(0, tensor.name.size() - 7) : tensor.name;
      allow_refusal([&] {
        const auto found = find_weight(weights, name);
        if (!found) return;
        require(found->count() <= 2 * static_cast<Size>(found->codes->data.size()));
        require(WeightReader(*found).values().size() == static_cast<std::size_t>(found->count()));
      });
    }
  });
}

// Lines of "pattern" as precision.layers has them, and as globs of input files.
inline void fuzz_plan_patterns(std::string_view text) {
  PrecisionConfig precision;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    matches_glob(line, "deep/down/a.txt");
    precision.layers.emplace(line, "bf16");
  }
  allow_refusal([&] { require(make_plan(precision, two_layers()).rows.size() == 6); });
}

// The bytes as BLOBs of a store with two roles, at a level and bin that the first two bytes say; the checksums agree,
// so that what stands behind them is reached.
inline void fuzz_store_blobs(Database& database, std::span<const std::byte> input) {
  const std::vector<std::string> roles{"x", "w", "x"};
  const SiteLayout layout = SiteLayout::of(roles);
  std::uint64_t damaged = 0;
  const auto count = [&](std::uint64_t) { ++damaged; };
  const int level = input.empty() ? 0 : std::to_integer<int>(input[0]) % 12;
  const std::uint64_t bin = input.size() < 2 ? 0 : std::to_integer<std::uint64_t>(input[1]);
  const auto blob = input.subspan(std::min<std::size_t>(input.size(), 2));
  const auto checksum = static_cast<std::int64_t>(crc32c(blob));
  database.execute("DELETE FROM numerics");
  database.execute("DELETE FROM histograms");
  database.prepared("INSERT INTO numerics VALUES(1,?,0,0,0,?,?,?)").bind(level, bin, blob, checksum).run();
  database.prepared("INSERT INTO histograms VALUES(1,5,0,?,?)").bind(blob, checksum).run();
  const NumericsTable numerics(database, 1, layout, count);
  numerics.check();
  numerics.visit({.statistic = 0, .role = 0, .first_chunk = 0, .end_chunk = 1, .begin = 0, .end = 4096}, level % 9,
                 [&](std::uint64_t, std::size_t chunk, std::span<const float> values) {
                   require(chunk == 0 && values.size() == 2);
                 });
  const HistogramTable histograms(database, 1, count);
  histograms.check(roles.size());
  for (std::size_t site = 0; site < 4; ++site) {
    const std::uint64_t before = damaged;
    require(histograms.read(5, site).has_value() != (damaged > before));
  }
  std::span<const std::byte> rest = blob;
  if (const auto counts = decode_counts(rest)) {
    std::vector<std::byte> bytes;
    encode_counts(*counts, bytes);
    std::span<const std::byte> again = bytes;
    require(decode_counts(again) == counts && again.empty());
  }
}

}  // namespace quaver::test
