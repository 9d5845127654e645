#include "cli/convert.h"

#include <cmath>
#include <fmt/format.h>
#include <map>
#include <optional>

#include "cli/interrupt.h"
#include "cli/study.h"
#include "cli/verbs.h"
#include "interop/hf_config.h"
#include "interop/hf_layout.h"
#include "io/file_io.h"
#include "precision/scale_book.h"
#include "quaver/error.h"

namespace quaver {

namespace {

ConversionReport convert(const ConvertArguments& arguments, ConvertOptions options) {
  const Interrupt interrupt;
  StudyBar bar("MiB converted:", Output::human);
  options.stop = interrupt.flag();
  options.progress = [&](std::uint64_t done, std::uint64_t total) {
    bar.show(static_cast<Size>(done >> 20U), static_cast<Size>(total >> 20U));
  };
  ConversionReport report{.from = arguments.from,
                          .to = arguments.out,
                          .format = options.to,
                          .least_sqnr = options.least_sqnr.value_or(default_least_sqnr(options.to)),
                          .conversion = {},
                          .calibration = arguments.calibration,
                          .check = {}};
  const double started = steady_seconds();
  report.conversion = convert_hf(arguments.from, arguments.out, options);
  report.seconds = steady_seconds() - started;
  return report;
}

}  // namespace

CalibrationCheck compare_with_calibration(const ModelConfig& model, const Conversion& conversion,
                                          std::string_view scales, const std::string& name) {
  constexpr double same = 1.0 / 64;  // binades: weights rounded to BF16 since are within it
  std::map<std::string, float> converted;
  for (const ConvertedLayer& layer : conversion.layers) converted[layer.name] = layer.statistics.amax;
  Calibration now;
  for (const HfTensor& tensor : hf_tensors(model)) {
    const auto found = converted.find(tensor.name);
    if (found == converted.end()) continue;
    const std::string site = layer_of(tensor.parameter) + "/w";
    if (now.sites.empty() || now.sites.back().site != site) now.sites.emplace_back().site = site;
    float& amax = now.sites.back().seen.amax;  // of q, k and v together, which are one layer here
    amax = std::max(amax, found->second);
  }
  const Drift drift = drift_since(scales, name, now);
  CalibrationCheck check{.compared = drift.sites.size(), .different = {}};
  for (const SiteDrift& site : drift.sites) {
    if (std::abs(site.binades) > same) check.different.push_back(site);
  }
  return check;
}

std::map<std::string, float> input_amaxes(const ModelConfig& model, const std::map<std::string, float>& calibrated) {
  std::map<std::string, float> inputs;
  for (const HfTensor& tensor : hf_tensors(model)) {
    const auto found = calibrated.find(layer_of(tensor.parameter) + "/x");
    if (found != calibrated.end()) inputs[layer_of(tensor.name)] = found->second;
  }
  return inputs;
}

int convert_verb(const ConvertArguments& arguments) {
  std::optional<ModelConfig> model;  // layers of a calibration have this library's names, which the architecture gives
  std::string scales;
  ConvertOptions options = arguments.options;
  if (!arguments.calibration.empty()) {
    scales = read_file(arguments.calibration, largest_scale_file);
    const auto calibrated = amaxes_in(scales, arguments.calibration);
    model = resolved(read_hf_config(arguments.from));
    if (options.to == WeightFormat::nvfp4) {
      options.input_amax = input_amaxes(*model, calibrated);
      // Without a range the weights alone would be in NVFP4, which nobody asked for.
      if (options.input_amax.empty()) {
        throw Error(
            fmt::format("{} has no range of the inputs of any layer of {}", arguments.calibration, arguments.from),
            "make it with `quaver calibrate --model.from FOLDER`, or leave --calibration out");
      }
    }
  }
  ConversionReport report;
  try {
    report = convert(arguments, std::move(options));
  } catch (const ConvertInterrupted&) {
    return 130;
  }
  if (model) report.check = compare_with_calibration(*model, report.conversion, scales, arguments.calibration);
  fmt::print("{}", conversion_table(report));
  if (!arguments.json.empty()) write_file_atomically(arguments.json, conversion_json(report));
  if (!arguments.html.empty()) write_file_atomically(arguments.html, conversion_page(report));
  if (report.conversion.files.empty()) {
    throw Error(fmt::format("{}; nothing was written", refused_layers(report)),
                "--keep leaves layers in high precision, a format with finer scales loses less, and --force writes "
                "the model as it is");
  }
  fmt::print("{}\n", conversion_summary(report));
  return 0;
}

}  // namespace quaver
