#include "interop/hf_layout.h"

#include <fmt/format.h>
#include <utility>

namespace quaver {

namespace {

class TensorList {
 public:
  // The next part of the parameter.
  void add(const std::string& name, const std::string& parameter, Size rows, Size cols, HfLayout layout) {
    const bool continues = !list_.empty() && list_.back().parameter == parameter;
    const Size offset = continues ? list_.back().offset + list_.back().count() : 0;
    list_.push_back({name, parameter, offset, rows, cols, layout});
  }
  void vector(const std::string& name, const std::string& parameter, Size cols) {
    add(name, parameter, 1, cols, HfLayout::vector);
  }
  void matrix(const std::string& name, const std::string& parameter, Size rows, Size cols) {
    add(name, parameter, rows, cols, HfLayout::matrix);
  }
  // GPT-2's Conv1D.
  void transposed_with_bias(const std::string& name, const std::string& parameter, Size rows, Size cols) {
    add(name + ".weight", parameter + ".weight", rows, cols, HfLayout::transposed);
    vector(name + ".bias", parameter + ".bias", rows);
  }
  void layer_norm(const std::string& name, const std::string& parameter, Size width) {
    vector(name + ".weight", parameter + ".weight", width);
    vector(name + ".bias", parameter + ".bias", width);
  }
  std::vector<HfTensor> take() { return std::move(list_); }

 private:
  std::vector<HfTensor> list_;
};

std::vector<HfTensor> gpt2_tensors(const ModelConfig& model) {
  TensorList list;
  list.matrix("transformer.wte.weight", "embed.weight", model.vocab, model.width);
  list.matrix("transformer.wpe.weight", "positions.weight", model.context, model.width);
  for (Size i = 0; i < model.layers; ++i) {
    const std::string there = fmt::format("transformer.h.{}.", i);
    const std::string here = fmt::format("blocks.{}.", i);
    list.layer_norm(there + "ln_1", here + "norm1", model.width);
    list.transposed_with_bias(there + "attn.c_attn", here + "attn.qkv", 3 * model.width, model.width);
    list.transposed_with_bias(there + "attn.c_proj", here + "attn.out", model.width, model.width);
    list.layer_norm(there + "ln_2", here + "norm2", model.width);
    list.transposed_with_bias(there + "mlp.c_fc", here + "mlp.up", model.ffn, model.width);
    list.transposed_with_bias(there + "mlp.c_proj", here + "mlp.down", model.width, model.ffn);
  }
  list.layer_norm("transformer.ln_f", "norm", model.width);
  if (model.tie_head == TieHead::no) list.matrix("lm_head.weight", "head.weight", model.vocab, model.width);
  return list.take();
}

void add_attention(TensorList& list, const ModelConfig& model, const std::string& there, const std::string& here) {
  const Size queries = model.heads * model.head_size;
  const Size keys = model.kv_heads * model.head_size;
  const std::pair<const char*, Size> projections[] = {{"q_proj", queries}, {"k_proj", keys}, {"v_proj", keys}};
  for (const auto& [name, rows] : projections) {
    list.matrix(fmt::format("{}{}.weight", there, name), here + "qkv.weight", rows, model.width);
  }
  if (model.qkv_bias) {
    for (const auto& [name, rows] : projections) {
      list.vector(fmt::format("{}{}.bias", there, name), here + "qkv.bias", rows);
    }
  }
  list.matrix(there + "o_proj.weight", here + "out.weight", model.width, queries);
  if (model.qk_norm) {
    list.vector(there + "q_norm.weight", here + "q_norm.weight", model.head_size);
    list.vector(there + "k_norm.weight", here + "k_norm.weight", model.head_size);
  }
}

std::vector<HfTensor> llama_tensors(const ModelConfig& model) {
  TensorList list;
  list.matrix("model.embed_tokens.weight", "embed.weight", model.vocab, model.width);
  for (Size i = 0; i < model.layers; ++i) {
    const std::string there = fmt::format("model.layers.{}.", i);
    const std::string here = fmt::format("blocks.{}.", i);
    list.vector(there + "input_layernorm.weight", here + "norm1.weight", model.width);
    add_attention(list, model, there + "self_attn.", here + "attn.");
    list.vector(there + "post_attention_layernorm.weight", here + "norm2.weight", model.width);
    list.matrix(there + "mlp.gate_proj.weight", here + "mlp.up.weight", model.ffn, model.width);
    list.matrix(there + "mlp.up_proj.weight", here + "mlp.up.weight", model.ffn, model.width);
    list.matrix(there + "mlp.down_proj.weight", here + "mlp.down.weight", model.width, model.ffn);
  }
  list.vector("model.norm.weight", "norm.weight", model.width);
  if (model.tie_head == TieHead::no) list.matrix("lm_head.weight", "head.weight", model.vocab, model.width);
  return list.take();
}

}  // namespace

std::vector<std::int64_t> HfTensor::shape() const {
  if (layout == HfLayout::vector) return {cols};
  if (layout == HfLayout::matrix) return {rows, cols};
  return {cols, rows};
}

std::vector<HfTensor> hf_tensors(const ModelConfig& model) {
  return model.family == Family::gpt ? gpt2_tensors(model) : llama_tensors(model);
}

}  // namespace quaver
