#include "interop/hf_convert.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>
#include <set>
#include <span>
#include <sys/mman.h>
#include <unistd.h>

#include "interop/hf_config.h"
#include "interop/hf_weights.h"
#include "interop/json_fields.h"
#include "interop/quantization_config.h"
#include "interop/weight_files.h"
#include "io/file_io.h"
#include "precision/plan.h"
#include "quaver/error.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

constexpr const char* config_name = "config.json";
constexpr double most_underflow_percent = 25;  // bell-shaped weights lose 7% in NVFP4

// What becomes of one tensor: copied where the format stays, cast otherwise.
struct Job {
  std::string name;
  const TensorEntry* copied = nullptr;
  std::optional<StoredWeight> weight;  // to cast
  WeightFormat to = WeightFormat::bf16;
};

struct Shard {
  std::string name;
  std::vector<Job> jobs;
};

// Decides what becomes of every tensor of a folder.
// Counters, masks and the like are copied; a floating-point tensor that is not converted would go unnoticed.
void require_whole_numbers(const TensorEntry& tensor) {
  if (tensor.dtype == "BOOL" || tensor.dtype.starts_with('I') || tensor.dtype.starts_with('U')) return;
  throw Error(fmt::format("{} is of type {}", printable(tensor.name), printable(tensor.dtype)),
              "F32, F16 and BF16 can be converted, and FP8 and NVFP4 with their scales");
}

class Planner {
 public:
  Planner(const HfWeights& folder, const ConvertOptions& options, WeightFormat high_precision)
      : folder_(folder), options_(options), high_precision_(high_precision) {}

  std::vector<Shard> shards() {
    std::vector<Shard> shards;
    for (const SafetensorsFile& file : folder_.files()) {
      Shard shard{file.path().filename().string(), {}};
      for (const TensorEntry& tensor : file.tensors()) add(tensor, shard);
      if (!shard.jobs.empty()) shards.push_back(std::move(shard));
    }
    check_all_used();
    check_patterns();
    return shards;
  }
  std::vector<std::string> take_kept() { return std::move(kept_); }

 private:
  void add(const TensorEntry& tensor, Shard& shard) {
    const std::string name = weight_name(tensor);
    if (is_scale(tensor.name)) {
      scales_.insert(&tensor);
      return;
    }
    const bool is_float = from_safetensors_type(tensor.dtype) || tensor.dtype == "F8_E4M3" || name != tensor.name;
    if (!is_float) {
      require_whole_numbers(tensor);
      shard.jobs.push_back({.name = name, .copied = &tensor, .weight = std::nullopt});
      return;
    }
    StoredWeight weight = *find_weight(folder_, name);
    used_.insert({weight.scales, weight.global_scale});
    used_.insert(weight.activation_scales.begin(), weight.activation_scales.end());
    const WeightFormat to = target(weight);
    const bool stays = weight.format == to && !is_quantized(to);
    Job job{.name = name, .copied = nullptr, .weight = std::nullopt, .to = to};
    if (stays || tensor.data.empty()) {
      job.copied = &tensor;
    } else {
      job.weight = std::move(weight);
    }
    shard.jobs.push_back(std::move(job));
  }

  // Packed codes stand for the weight.
  std::string weight_name(const TensorEntry& tensor) const {
    const bool packed = folder_.quantization() == WeightFormat::nvfp4 && tensor.name.ends_with(".weight_packed");
    return packed ? tensor.name.substr(0, tensor.name.size() - suffix::packed.size()) : tensor.name;
  }

  bool is_scale(std::string_view name) const {
    constexpr std::array<std::string_view, 5> ends{".weight_scale", ".weight_scale_inv", ".weight_global_scale",
                                                   suffix::input_scale, suffix::input_global};
    return folder_.quantization() &&
           std::any_of(ends.begin(), ends.end(), [&](std::string_view end) { return name.ends_with(end); });
  }

  WeightFormat target(const StoredWeight& weight) {
    const WeightFormat stored = is_quantized(weight.format) ? high_precision_ : weight.format;
    if (is_kept(weight.name)) {
      kept_.push_back(layer_of(weight.name));
      return stored;
    }
    if (!is_quantized(options_.to)) return options_.to;
    if (is_linear(weight.name, weight.shape) && can_hold(options_.to, weight.shape)) return options_.to;
    // Embeddings are no linear layers, which a config lists; the head is listed always.
    const bool listed = weight.shape.size() == 2 && weight.name.ends_with(suffix::weight) &&
                        weight.name.find("embed") == std::string::npos && layer_of(weight.name) != "lm_head";
    if (listed) kept_.push_back(layer_of(weight.name));
    return stored;
  }

  bool is_kept(const std::string& name) {
    bool kept = false;
    for (const std::string& pattern : options_.keep) {
      if (!matches(pattern, name) && !matches(pattern, layer_of(name))) continue;
      matched_.insert(pattern);
      kept = true;
    }
    return kept;
  }

  void check_all_used() const {
    for (const TensorEntry* scale : scales_) {
      if (used_.contains(scale)) continue;
      throw Error(fmt::format("{}: '{}' is a scale of no weight", folder_.folder().string(), printable(scale->name)),
                  "the model is damaged or was not saved whole: copy or download the folder again");
    }
  }
  void check_patterns() const {
    for (const std::string& pattern : options_.keep) {
      if (matched_.contains(pattern)) continue;
      throw Error(fmt::format("--keep {} matches no layer of {}", pattern, folder_.folder().string()),
                  "layers are named like model.layers.0.mlp.down_proj; * stands for any characters");
    }
  }

  const HfWeights& folder_;
  const ConvertOptions& options_;
  WeightFormat high_precision_;
  std::set<const TensorEntry*> scales_;
  std::set<const TensorEntry*> used_;
  std::set<std::string> matched_;
  std::vector<std::string> kept_;
};

std::string input_scale_name(const Job& job) { return layer_of(job.name) + std::string(suffix::input_global); }

bool has_input_scale(const Job& job, const ConvertOptions& options) {
  return job.weight && job.to == WeightFormat::nvfp4 && !options.input_amax.empty();
}

std::vector<WeightFiles::File> files_of(const std::vector<Shard>& shards, const ConvertOptions& options) {
  std::vector<WeightFiles::File> files;
  for (const Shard& shard : shards) {
    WeightFiles::File file{shard.name, {}};
    for (const Job& job : shard.jobs) {
      if (job.copied != nullptr) {
        file.tensors.push_back({job.copied->name, job.copied->dtype, job.copied->shape});
        continue;
      }
      const auto parts = stored_tensors({job.name, job.to, job.weight->shape});
      file.tensors.insert(file.tensors.end(), parts.begin(), parts.end());
      if (has_input_scale(job, options)) file.tensors.push_back({input_scale_name(job), "F32", {1}});
    }
    files.push_back(std::move(file));
  }
  return files;
}

// Of the whole pages of a mapped tensor: those that will be read are asked for ahead, those that were read would
// otherwise stay in memory until another program needs it.
void advise(std::span<const std::byte> bytes, int advice) {
  static const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const std::size_t into = reinterpret_cast<std::uintptr_t>(bytes.data()) % page;
  const std::size_t skipped = into == 0 ? 0 : page - into;
  if (skipped >= bytes.size()) return;
  const std::size_t whole = (bytes.size() - skipped) / page * page;
  if (whole > 0) ::madvise(const_cast<std::byte*>(bytes.data() + skipped), whole, advice);
}

// Casts and copies the tensors, and keeps count.
class Converter {
 public:
  Converter(const std::vector<Shard>& shards, const ConvertOptions& options, WeightFiles& files, Conversion& result)
      : options_(options), files_(files), result_(result) {
    for (const Shard& shard : shards) {
      for (const Job& job : shard.jobs) add(job);
    }
  }

  void run() {
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
      if (options_.stop != nullptr && *options_.stop) throw ConvertInterrupted{};
      const Job& job = *jobs_[i];
      ask_ahead(result_.bytes_read + bytes_of(job).size());
      job.copied != nullptr ? copy(*job.copied) : cast(job);
      advise(bytes_of(job), MADV_DONTNEED);
      count_values(job);
      result_.bytes_read += bytes_of(job).size();
      if (options_.progress) options_.progress(result_.bytes_read, total_);
    }
  }

 private:
  static std::span<const std::byte> bytes_of(const Job& job) {
    return job.copied != nullptr ? job.copied->data : job.weight->codes->data;
  }

  // Asks the disk for what is needed soon: some of it is always on its way, whatever the sizes of tensors.
  void ask_ahead(std::uint64_t needed) {
    constexpr std::uint64_t ahead = std::uint64_t{256} << 20U;
    for (; next_asked_ < jobs_.size() && asked_ < needed + ahead; ++next_asked_) {
      const std::span<const std::byte> bytes = bytes_of(*jobs_[next_asked_]);
      advise(bytes, MADV_WILLNEED);
      asked_ += bytes.size();
    }
  }

  void add(const Job& job) {
    jobs_.push_back(&job);
    total_ += bytes_of(job).size();
    if (job.weight && job.to == WeightFormat::nvfp4) fused_[fused_key(job.name)].push_back(&*job.weight);
  }

  void count_values(const Job& job) {
    const std::uint64_t count = job.weight ? static_cast<std::uint64_t>(job.weight->count())
                                           : job.copied->data.size() / *safetensors_element_bytes(job.copied->dtype);
    result_.values += count;
    const bool converted = job.weight ? job.to == options_.to : job.copied->dtype == safetensors_type(options_.to);
    if (converted) result_.converted_values += count;
  }

  void copy(const TensorEntry& tensor) {
    in_bands(static_cast<Size>(tensor.data.size()), 1, [&](const Band& band) {
      const auto first = static_cast<std::size_t>(band.first);
      files_.write(tensor.name, first, tensor.data.subspan(first, static_cast<std::size_t>(band.count)));
    });
  }

  static float amax_of(const StoredWeight& weight) {
    const WeightReader reader(weight);
    std::vector<float> bands(static_cast<std::size_t>(band_count(weight.rows, weight.cols)));
    in_bands(weight.rows, weight.cols, [&](const Band& band) {
      std::vector<float> values(static_cast<std::size_t>(band.count * weight.cols));
      reader.decode(band.first, band.count, values.data());
      bands[static_cast<std::size_t>(band.index)] = amax(values.data(), static_cast<Size>(values.size())).value;
    });
    return *std::max_element(bands.begin(), bands.end());
  }

  // Found once for layers that share it.
  float amax_for(const Job& job) {
    if (!needs_amax(job.to)) return 0;
    if (job.to != WeightFormat::nvfp4) return amax_of(*job.weight);
    const std::string key = fused_key(job.name);
    const auto known = amaxes_.find(key);
    if (known != amaxes_.end()) return known->second;
    float largest = 0;
    for (const StoredWeight* weight : fused_.at(key)) largest = std::max(largest, amax_of(*weight));
    amaxes_.emplace(key, largest);
    return largest;
  }

  void cast(const Job& job) {
    const StoredWeight& weight = *job.weight;
    const WeightReader reader(weight);
    WeightCast cast({job.name, job.to, weight.shape}, amax_for(job), Detail::full);
    ConvertedLayer layer{.name = printable(job.name), .rows = weight.rows, .cols = weight.cols};
    layer.statistics =
        cast.write([&](const Band& band, float* values) { reader.decode(band.first, band.count, values); }, files_);
    layer.scales = cast.scale_range();
    if (has_input_scale(job, options_)) write_input_scale(job);
    layer.refusal = refusal_of(layer.statistics, job.to);
    result_.layers.push_back(std::move(layer));
  }

  void write_input_scale(const Job& job) {
    const auto found = options_.input_amax.find(layer_of(job.name));
    if (found == options_.input_amax.end() || !(found->second > 0)) {
      throw Error(fmt::format("the calibration has no range of the inputs of {}", printable(layer_of(job.name))),
                  "calibrate this model again, or leave the calibration out");
    }
    const float scale = nvfp4_input_scale(found->second);
    files_.write(input_scale_name(job), 0, std::as_bytes(std::span(&scale, 1)));
  }

  std::string refusal_of(const CastStatistics& seen, WeightFormat to) const {
    const double least = options_.least_sqnr && to == options_.to ? *options_.least_sqnr : default_least_sqnr(to);
    if (seen.nonfinite > 0) return fmt::format("{} values are not finite", seen.nonfinite);
    // Scales of NVFP4 are rounded, so that some blocks saturate by a few percent; its SQNR counts that.
    if (seen.saturated > 0 && to != WeightFormat::nvfp4) {
      return fmt::format("{} values are beyond {}, the largest of {}", seen.saturated, info(spec_of(to).format).max,
                         name_of(to));
    }
    // Errors of small values hardly move the SQNR of a layer whose outliers have all the energy.
    if (seen.underflow_percent() > most_underflow_percent) {
      return fmt::format("{:.1f}% of its values become zero", seen.underflow_percent());
    }
    if (seen.sqnr_db() < least) return fmt::format("SQNR is {:.1f} dB, below {:g} dB", seen.sqnr_db(), least);
    return {};
  }

  const ConvertOptions& options_;
  WeightFiles& files_;
  Conversion& result_;
  std::vector<const Job*> jobs_;
  std::uint64_t total_ = 0;  // bytes
  std::size_t next_asked_ = 0;
  std::uint64_t asked_ = 0;  // bytes
  std::map<std::string, std::vector<const StoredWeight*>> fused_;
  std::map<std::string, float> amaxes_;
};

// All but weights, of whatever kind, and what describes them.
void copy_others(const fs::path& from, StagedFolder& to) {
  constexpr std::array<std::string_view, 9> weights{".safetensors", ".bin",  ".pt",      ".pth", ".gguf",
                                                    ".h5",          ".onnx", ".msgpack", ".ot"};
  std::set<fs::path> others;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(from, error)) {
    const std::string name = entry.path().filename().string();
    const bool is_weights = std::find(weights.begin(), weights.end(), entry.path().extension()) != weights.end();
    const bool described = name == config_name || name.ends_with(".index.json");
    if (entry.is_regular_file(error) && !is_weights && !described) others.insert(entry.path());
  }
  if (error) throw system_error("cannot read the folder", from, error.value());
  for (const fs::path& path : others) to.copy(path);
}

void check_any_converted(const std::vector<Shard>& shards, const fs::path& from, WeightFormat to) {
  if (!is_quantized(to)) return;
  for (const Shard& shard : shards) {
    const auto cast = [&](const Job& job) { return job.weight && job.to == to; };
    if (std::any_of(shard.jobs.begin(), shard.jobs.end(), cast)) return;
  }
  throw Error(fmt::format("{} has no linear layer that {} can hold", from.string(), name_of(to)),
              "linear layers are matrices named ….weight; see that --keep does not match them all");
}

}  // namespace

double default_least_sqnr(WeightFormat format) {
  if (format == WeightFormat::nvfp4) return 15;
  return is_quantized(format) ? 25 : 40;
}

Conversion convert_hf(const fs::path& from, const fs::path& to, const ConvertOptions& options) {
  const std::string config = hf_config_text(from);
  const std::string source = (from / config_name).string();
  const HfWeights folder(from);
  const WeightFormat stored = parse_torch_dtype(config, source).value_or(WeightFormat::bf16);
  Planner planner(folder, options, is_quantized(options.to) ? stored : options.to);
  const std::vector<Shard> shards = planner.shards();
  check_any_converted(shards, from, options.to);
  Conversion result;
  result.from = folder.quantization();
  result.kept = planner.take_kept();
  StagedFolder staged(to);
  WeightFiles files(staged, files_of(shards, options));
  Converter(shards, options, files, result).run();
  const bool beyond = std::any_of(result.layers.begin(), result.layers.end(),
                                  [](const ConvertedLayer& layer) { return !layer.refusal.empty(); });
  if (beyond && options.beyond_limits == BeyondLimits::refuse) return result;
  files.finish();
  result.bytes_written = files.bytes();
  QuantizationEntry entry{.format = options.to, .high_precision = result.kept};
  entry.high_precision.insert(entry.high_precision.begin(), "lm_head");
  if (!options.input_amax.empty()) entry.nvfp4_inputs = Nvfp4Inputs::nvfp4;
  write_file_atomically(staged / config_name, with_quantization(config, entry));
  copy_others(from, staged);
  result.files = staged.commit();
  return result;
}

}  // namespace quaver
