// A trainer's whole state as a checkpoint, and back.
#include "train/trainer_state.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "quaver/error.h"
#include "train/trainer.h"

namespace quaver {

using nlohmann::json;

namespace {

const char* dtype_of(Format format) {
  switch (format) {
    case Format::bf16:
      return "BF16";
    case Format::f16:
      return "F16";
    case Format::e4m3:
      return "F8_E4M3";
    case Format::e5m2:
      return "F8_E5M2";
    case Format::e2m1:
      return "U8";
    case Format::f32:
    case Format::tf32:
      break;
  }
  return "F32";
}

// Copies what lies in the engine's memory to the host, one piece behind the other.
class HostCopy {
 public:
  HostCopy(Engine& engine, std::vector<std::byte>& memory, Size bytes) : engine_(engine), memory_(memory) {
    memory_.resize(static_cast<std::size_t>(bytes));
  }

  std::span<const std::byte> take(const void* device, Size bytes) {
    const auto count = static_cast<std::size_t>(bytes);
    std::byte* place = memory_.data() + used_;
    engine_.device().download(device, place, count);
    used_ += count;
    return {place, count};
  }

 private:
  Engine& engine_;
  std::vector<std::byte>& memory_;
  std::size_t used_ = 0;
};

// A matrix for vectors too would puzzle other readers: one row is one dimension.
std::vector<std::int64_t> shape_of(Size rows, Size cols, ParameterKind kind) {
  if (kind == ParameterKind::vector) return {cols};
  return {rows, cols};
}

std::string tensor_name(const Parameter& parameter, const OptimizerSlot& slot) {
  return parameter.name + "." + slot.name;
}

void add_slot(std::vector<TensorEntry>& out, const Parameter& parameter, const OptimizerSlot& slot, HostCopy& copy) {
  const CodeMatrix& values = slot.values;
  const std::string name = tensor_name(parameter, slot);
  out.push_back({name, dtype_of(values.spec.format), shape_of(values.rows, values.cols, parameter.kind),
                 copy.take(values.codes, values.code_bytes())});
  if (slot.scale_count() == 0) return;
  out.push_back({name + ".scale",
                 "F32",
                 {values.scale_rows(), values.scale_cols()},
                 copy.take(values.block_scales, slot.scale_count() * 4)});
}

void copy_tensor(Engine& engine, const SafetensorsFile& file, const std::string& name, const char* dtype, void* to,
                 Size bytes) {
  const TensorEntry& tensor = file.at(name);
  if (tensor.dtype != dtype || tensor.data.size() != static_cast<std::size_t>(bytes)) {
    throw Error(fmt::format("{}: {} holds {} bytes of {}, and this run needs {} bytes of {}", file.path().string(),
                            name, tensor.data.size(), tensor.dtype, bytes, dtype),
                "the checkpoint belongs to a run of another shape: resume with that run's own config");
  }
  engine.device().upload(tensor.data.data(), to, tensor.data.size());
}

void copy_slot(Engine& engine, const SafetensorsFile& file, const Parameter& parameter, const OptimizerSlot& slot) {
  const CodeMatrix& values = slot.values;
  const std::string name = tensor_name(parameter, slot);
  copy_tensor(engine, file, name, dtype_of(values.spec.format), values.codes, values.code_bytes());
  if (slot.scale_count() > 0) {
    copy_tensor(engine, file, name + ".scale", "F32", values.block_scales, slot.scale_count() * 4);
  }
}

constexpr Size most_batches = Size{1} << 50;  // beyond it an index of batches can only be damage

}  // namespace

std::string to_json(const TrainerState& state) {
  return json{{"step", state.step},
              {"updates", state.updates},
              {"skipped_batches", state.skipped_batches},
              {"last_weight_cast", state.last_weight_cast},
              {"switched", state.switched},
              {"loss_scale_log2", state.loss_scale_log2},
              {"loss_scale_clean_steps", state.loss_scale_clean_steps},
              {"notes", state.notes},
              {"unit_factors", state.unit_factors},
              {"scale_book", json::parse(state.scale_book)}}
      .dump(1);
}

TrainerState parse_state(std::string_view text, std::uint64_t step, std::string_view source) {
  const auto damaged = [&](const std::string& why) {
    return Error(fmt::format("{}: not the state of a run: {}", source, why), "resume from an older checkpoint");
  };
  TrainerState state;
  try {
    constexpr int deepest = 32;  // writing JSON, as below, calls itself for every level
    const auto refuse_deep = [&](int depth, json::parse_event_t, const json&) {
      if (depth > deepest) throw damaged("it is nested too deep");
      return true;
    };
    const json read = json::parse(text, refuse_deep);
    // An integer where one is due: a conversion from 1e18 or -1.5 would give some other number.
    const auto integer = [&](const char* key, Size most) {
      const json& value = read.at(key);
      const bool fits = value.is_number_integer() && value.get<Size>() >= 0 && value.get<Size>() <= most;
      if (!fits) throw damaged(fmt::format("{} is {}", key, value.dump()));
      return value.get<Size>();
    };
    state.step = integer("step", most_batches);
    state.updates = integer("updates", state.step);
    state.skipped_batches = integer("skipped_batches", most_batches);
    state.last_weight_cast =
        static_cast<std::uint32_t>(integer("last_weight_cast", std::min<Size>(state.step, UINT32_MAX)));
    state.switched = read.at("switched").get<bool>();
    state.loss_scale_log2 = static_cast<int>(integer("loss_scale_log2", LossScale::largest_log2));
    state.loss_scale_clean_steps = static_cast<int>(integer("loss_scale_clean_steps", INT32_MAX));
    state.notes = read.at("notes").get<std::map<std::string, double>>();
    state.unit_factors = read.at("unit_factors").get<std::vector<float>>();
    state.scale_book = read.at("scale_book").dump();
  } catch (const json::exception& error) {
    throw damaged(error.what());
  }
  if (static_cast<std::uint64_t>(state.step) != step) {
    throw damaged(fmt::format("it is of step {}, the manifest of step {}", state.step, step));
  }
  const auto finite = [](float factor) { return std::isfinite(factor); };
  if (!std::all_of(state.unit_factors.begin(), state.unit_factors.end(), finite)) {
    throw damaged("a unit-scaling factor is not finite");
  }
  return state;
}

CheckpointContent Trainer::snapshot() {
  engine_.wait_for_statistics(sites_);
  HostCopy copy(engine_, snapshot_, model_->parameters().weight_bytes() + optimizer_->stored_bytes());
  CheckpointContent content;
  for (const Parameter& parameter : model_->parameters().all()) {
    content.model.push_back({parameter.name, dtype_of(parameter.weight.format),
                             shape_of(parameter.rows, parameter.cols, parameter.kind),
                             copy.take(parameter.weight.data, parameter.weight.bytes())});
  }
  for (const OptimizerState& state : optimizer_->states()) {
    for (const OptimizerSlot& slot : state.slots) add_slot(content.optimizer, *state.parameter, slot, copy);
  }
  content.state = to_json(TrainerState{.step = step_,
                                       .updates = optimizer_->updates(),
                                       .skipped_batches = skipped_batches_,
                                       .last_weight_cast = last_weight_cast_,
                                       .switched = switched_,
                                       .loss_scale_log2 = loss_scale_.log2(),
                                       .loss_scale_clean_steps = loss_scale_.clean_steps(),
                                       .notes = notes_,
                                       .unit_factors = model_->unit_factors(),
                                       .scale_book = book_.to_json()});
  content.metadata = {{"quaver.step", std::to_string(step_)}, {"quaver.recipe", config_.precision.recipe}};
  return content;
}

void Trainer::restore(const Checkpoint& checkpoint) {
  const TrainerState state =
      parse_state(checkpoint.state(), checkpoint.step(), (checkpoint.path() / "state.json").string());
  for (Parameter& parameter : model_->parameters().all()) {
    copy_tensor(engine_, checkpoint.model(), parameter.name, dtype_of(parameter.weight.format), parameter.weight.data,
                parameter.weight.bytes());
  }
  for (const OptimizerState& kept : optimizer_->states()) {
    for (const OptimizerSlot& slot : kept.slots) copy_slot(engine_, checkpoint.optimizer(), *kept.parameter, slot);
  }
  step_ = state.step;
  optimizer_->restore_updates(state.updates);
  skipped_batches_ = state.skipped_batches;
  last_weight_cast_ = state.last_weight_cast;
  switched_ = state.switched;
  loss_scale_.restore(state.loss_scale_log2, state.loss_scale_clean_steps);
  notes_ = state.notes;
  model_->set_unit_factors(state.unit_factors);
  engine_.wait_for_statistics(sites_);  // what was seen before belongs to another run
  const auto missing =
      book_.from_json(state.scale_book, ScaleBook::Import::everything, static_cast<std::uint64_t>(step_));
  if (!missing.empty()) {
    throw Error(fmt::format("{}: the scale book has no entry for {}", checkpoint.path().string(), missing.front()),
                "the checkpoint belongs to another model: resume with that run's own config");
  }
  engine_.upload_scales(sites_);
  plan_memory();
  // Casting again with the stored scales and random streams gives the same codes; what the casts saw is already in
  // the book, so it must not be counted twice.
  model_->parameters().quantize_all(engine_, weight_casting().unobserved());
  if (is_sampled(step_)) look_at_weights_again();
  restart_loader();
}

// The step to come is sampled: its figures of the weights are those of their last cast, which checkpoints keep the
// counts of only.
void Trainer::look_at_weights_again() {
  std::vector<CastStatistics> before;
  for (const Site* site : sites_) before.push_back(site->seen);
  for (Site* site : sites_) site->seen = {};
  model_->parameters().quantize_all(engine_, weight_casting(Detail::full));
  engine_.wait_for_statistics(sites_);
  for (std::size_t i = 0; i < sites_.size(); ++i) {
    if (before[i].count == 0) sites_[i]->seen = {};  // after a skipped step the weights were not cast
  }
}

}  // namespace quaver
