// A conversion as the verb shows it: on the terminal, as JSON and as an HTML report.
#pragma once

#include <string>
#include <vector>

#include "interop/hf_convert.h"
#include "study/calibrate.h"

namespace quaver {

struct ConversionReport {
  std::string from;  // folders
  std::string to;
  WeightFormat format = WeightFormat::bf16;
  double least_sqnr = 0;  // in dB
  Conversion conversion;
  double seconds = 0;
  std::string calibration;           // file that weights were compared with; empty: none
  std::vector<SiteDrift> different;  // sites whose weights are not those of the calibration
};

std::string conversion_table(const ConversionReport& report);
std::string conversion_json(const ConversionReport& report);
std::string conversion_page(const ConversionReport& report);

// What was converted and how fast, in one line.
std::string conversion_summary(const ConversionReport& report);

// The layers that are beyond the limits, for a message: a few by name, the others by their number.
std::string refused_layers(const ConversionReport& report);

// Sites of a scale file whose amax is not that of the converted weights; empty where all are. Throws Error where the
// file is none, and where none of its sites was converted.
std::vector<SiteDrift> compare_with_calibration(const ModelConfig& model, const Conversion& conversion,
                                                const std::string& file);

}  // namespace quaver
