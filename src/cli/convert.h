// A conversion as the verb shows it: on the terminal, as JSON and as an HTML report.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "interop/hf_convert.h"
#include "study/calibrate.h"

namespace quaver {

// The weights against those that a calibration has measured.
struct CalibrationCheck {
  std::size_t compared = 0;          // sites
  std::vector<SiteDrift> different;  // of those, whose amax is another
};

struct ConversionReport {
  std::string from;  // folders
  std::string to;
  WeightFormat format = WeightFormat::bf16;
  double least_sqnr = 0;  // in dB
  Conversion conversion;
  double seconds = 0;
  std::string calibration;  // file that weights were compared with; empty: none
  CalibrationCheck check;
};

std::string conversion_table(const ConversionReport& report);
std::string conversion_json(const ConversionReport& report);
std::string conversion_page(const ConversionReport& report);

// What was converted and how fast, in one line.
std::string conversion_summary(const ConversionReport& report);

// The layers that are beyond the limits, for a message: a few by name, the others by their number.
std::string refused_layers(const ConversionReport& report);

// `scales` is the text of a scale file, `name` its name for messages.
CalibrationCheck compare_with_calibration(const ModelConfig& model, const Conversion& conversion,
                                          std::string_view scales, const std::string& name);

// The amax of each layer's input, by its Hugging Face name, from those of a calibration's sites.
std::map<std::string, float> input_amaxes(const ModelConfig& model, const std::map<std::string, float>& calibrated);

}  // namespace quaver
