// Converts a Hugging Face model folder into one with its weights in another format, of whatever architecture: tensors
// are told apart by name and shape alone. Weights pass band by band from mapped files to new ones, so that memory holds
// a few bands whatever the size of the model.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "formats/quantize.h"
#include "interop/weight_cast.h"
#include "interop/weight_format.h"

namespace quaver {

enum class BeyondLimits : std::uint8_t { refuse, allow };

struct ConvertOptions {
  WeightFormat to = WeightFormat::bf16;
  std::vector<std::string> keep = {};     // globs of layers that stay in high precision; each must match one
  std::optional<double> least_sqnr = {};  // in dB; default_least_sqnr() where it is not given
  BeyondLimits beyond_limits = BeyondLimits::refuse;
  std::map<std::string, float> input_amax = {};  // of NVFP4: by layer, so that inputs can be quantized too; empty: none
  std::function<void(std::uint64_t done, std::uint64_t total)> progress = {};  // bytes read
  const std::atomic<bool>* stop = nullptr;
};

// Below this a format does something to the weights that it does not do to bell-shaped ones: outliers beyond its
// range, or values too small for it. A layer is also beyond the limits where a quarter of its values become zero, where
// one is not finite, and where one saturates.
double default_least_sqnr(WeightFormat format);

struct ConvertedLayer {
  std::string name;  // of the tensor, fit for a terminal
  Size rows = 0;
  Size cols = 0;
  CastStatistics statistics = {};
  ScaleRange scales = {};
  std::string refusal = {};  // why it is beyond the limits; empty: it is not
};

struct Conversion {
  std::optional<WeightFormat> from;    // quantization that the folder had; nothing: none
  std::vector<ConvertedLayer> layers;  // that were cast, in the order of the files
  std::vector<std::string> kept;       // linear layers that stay in high precision
  std::uint64_t values = 0;            // of all tensors
  std::uint64_t converted_values = 0;  // of those that are in the format now
  std::uint64_t bytes_read = 0;
  std::uint64_t bytes_written = 0;
  std::vector<std::filesystem::path> files;  // empty: nothing was written, since a layer is beyond the limits
};

// Thrown where options.stop asks for it; nothing is left behind.
struct ConvertInterrupted {};

// Writes `to`, which must be empty or not exist, and which appears complete or not at all. The shards are those of
// `from`; files other than weights are copied. Throws Error, naming the file and the tensor, where the folder is
// damaged.
Conversion convert_hf(const std::filesystem::path& from, const std::filesystem::path& to,
                      const ConvertOptions& options);

}  // namespace quaver
