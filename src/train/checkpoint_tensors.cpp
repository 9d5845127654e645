#include "train/checkpoint_tensors.h"

#include <algorithm>
#include <fmt/format.h>

#include "quaver/error.h"

namespace quaver {

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
    case Format::e3m4:
    case Format::e3m2:
    case Format::e2m3:
    case Format::int8:
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
  HostCopy(Engine& engine, int rank, std::vector<std::byte>& memory, Size bytes)
      : engine_(engine), rank_(rank), memory_(memory) {
    memory_.resize(static_cast<std::size_t>(bytes));
  }

  // Nothing where the owner of a parameter is another rank, which writes it.
  std::span<const std::byte> take(const Parameter& parameter, const void* device, Size bytes) {
    if (parameter.owner != rank_) return {};
    const auto count = static_cast<std::size_t>(bytes);
    std::byte* place = memory_.data() + used_;
    engine_.device().download(device, place, count);
    used_ += count;
    return {place, count};
  }

 private:
  Engine& engine_;
  int rank_;
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
                 copy.take(parameter, values.codes, values.code_bytes())});
  if (slot.scale_count() == 0) return;
  out.push_back({name + ".scale",
                 "F32",
                 {values.scale_rows(), values.scale_cols()},
                 copy.take(parameter, values.block_scales, slot.scale_count() * 4)});
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
  if (file.find(name) == nullptr) {
    const auto of_parameter = [&](const TensorEntry& tensor) { return tensor.name.starts_with(parameter.name + "."); };
    if (std::ranges::any_of(file.tensors(), of_parameter)) {
      throw Error(
          fmt::format("{}: no {} of {}: another optimizer updated it", file.path().string(), slot.name, parameter.name),
          "leave optim.optimizer and optim.muon_matrices as the run has them, or start a new run from an "
          "export of this one (model.from)");
    }
    throw Error(fmt::format("{}: no optimizer state of {}: it was frozen (optim.learning_rate_of)",
                            file.path().string(), parameter.name),
                "leave it frozen, or start a new run from an export of this one (model.from)");
  }
  copy_tensor(engine, file, name, dtype_of(values.spec.format), values.codes, values.code_bytes());
  if (slot.scale_count() > 0) {
    copy_tensor(engine, file, name + ".scale", "F32", values.block_scales, slot.scale_count() * 4);
  }
}

// Adapters without a place in the model would be lost without a word.
void refuse_lost_adapters(const SafetensorsFile& file, const Parameters& parameters) {
  for (const TensorEntry& tensor : file.tensors()) {
    if (!tensor.name.ends_with(".lora_B.weight")) continue;
    const bool found = std::ranges::find(parameters.all(), tensor.name, &Parameter::name) != parameters.all().end();
    if (found) continue;
    throw Error(fmt::format("{}: the model has no place for the adapter {}", file.path().string(), tensor.name),
                "leave lora.rank and lora.targets as the run has them");
  }
}

}  // namespace

void CheckpointTensors::copy_from(Engine& engine, const Parameters& parameters, Optimizer& optimizer,
                                  CheckpointContent& content) {
  Size bytes = 0;
  for (const OptimizerState& state : optimizer.states()) {
    if (state.parameter->owner != parameters.place().rank) continue;
    bytes += state.parameter->master.bytes();
    for (const OptimizerSlot& slot : state.slots) bytes += slot.stored_bytes();
  }
  HostCopy copy(engine, parameters.place().rank, host_, bytes);
  for (const Parameter& parameter : parameters.all()) {
    content.model.push_back({parameter.name, dtype_of(parameter.weight.format),
                             shape_of(parameter.rows, parameter.cols, parameter.kind),
                             copy.take(parameter, parameter.master.data, parameter.master.bytes())});
  }
  for (const OptimizerState& state : optimizer.states()) {
    for (const OptimizerSlot& slot : state.slots) add_slot(content.optimizer, *state.parameter, slot, copy);
  }
}

void upload_tensors(const Checkpoint& checkpoint, Engine& engine, Parameters& parameters, Optimizer& optimizer) {
  refuse_lost_adapters(checkpoint.model(), parameters);
  for (const Parameter& parameter : parameters.all()) {
    if (!parameter.kept) continue;
    copy_tensor(engine, checkpoint.model(), parameter.name, dtype_of(parameter.master.format), parameter.master.data,
                parameter.master.bytes());
  }
  for (const OptimizerState& kept : optimizer.states()) {
    if (!kept.parameter->kept) continue;
    for (const OptimizerSlot& slot : kept.slots) copy_slot(engine, checkpoint.optimizer(), *kept.parameter, slot);
  }
}

}  // namespace quaver
