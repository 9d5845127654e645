// The published architectures in double precision, straight from their descriptions: a model folder's tensors by their
// Hugging Face names, one sequence, the logits of every position. Nothing of the library computes here.
#pragma once

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "support/hf_folder.h"

namespace quaver::test {

class HfReference {
 public:
  explicit HfReference(const std::filesystem::path& folder) {
    std::ifstream(folder / "config.json") >> config_;
    for (const auto& [name, content] : hf_contents(folder)) {
      const std::vector<float> values = hf_values(content.second, content.first);
      tensors_.emplace(name, Row(values.begin(), values.end()));
    }
  }

  std::vector<std::vector<double>> logits(const std::vector<int>& tokens) const {
    return config_.at("model_type") == "gpt2" ? gpt2(tokens) : llama(tokens);
  }

  // Mean cross-entropy of every token but the first, in nats.
  double loss(const std::vector<int>& tokens) const {
    const auto all = logits({tokens.begin(), tokens.end() - 1});
    double sum = 0;
    for (std::size_t t = 0; t < all.size(); ++t) {
      double total = 0;
      for (const double logit : all[t]) total += std::exp(logit);
      sum += std::log(total) - all[t][static_cast<std::size_t>(tokens[t + 1])];
    }
    return sum / static_cast<double>(all.size());
  }

  std::map<std::string, std::vector<double>>& tensors() { return tensors_; }

 private:
  using Row = std::vector<double>;
  using Rows = std::vector<Row>;

  const Row& at(const std::string& name) const { return tensors_.at(name); }
  std::size_t whole(const char* key) const { return config_.at(key).get<std::size_t>(); }

  // torch.nn.Linear: weight [out, in].
  Row linear(const Row& x, const std::string& name) const {
    const Row& weight = at(name + ".weight");
    const std::size_t out = weight.size() / x.size();
    Row y(out, 0.0);
    for (std::size_t o = 0; o < out; ++o) {
      for (std::size_t i = 0; i < x.size(); ++i) y[o] += weight[o * x.size() + i] * x[i];
    }
    if (const auto bias = tensors_.find(name + ".bias"); bias != tensors_.end()) add(y, bias->second);
    return y;
  }

  // GPT-2's Conv1D: weight [in, out].
  Row conv(const Row& x, const std::string& name) const {
    const Row& weight = at(name + ".weight");
    Row y = at(name + ".bias");
    for (std::size_t i = 0; i < x.size(); ++i) {
      for (std::size_t o = 0; o < y.size(); ++o) y[o] += weight[i * y.size() + o] * x[i];
    }
    return y;
  }

  static void add(Row& to, const Row& what) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += what[i];
  }

  Row layer_norm(const Row& x, const std::string& name) const {
    double mean = 0;
    for (const double value : x) mean += value / static_cast<double>(x.size());
    double variance = 0;
    for (const double value : x) variance += (value - mean) * (value - mean) / static_cast<double>(x.size());
    const double scale = 1 / std::sqrt(variance + config_.at("layer_norm_epsilon").get<double>());
    Row y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      y[i] = (x[i] - mean) * scale * at(name + ".weight")[i] + at(name + ".bias")[i];
    }
    return y;
  }

  Row rms_norm(const Row& x, const std::string& name) const {
    double square = 0;
    for (const double value : x) square += value * value / static_cast<double>(x.size());
    const double scale = 1 / std::sqrt(square + config_.at("rms_norm_eps").get<double>());
    Row y(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * at(name + ".weight")[i];
    return y;
  }

  static Row part(const Row& x, std::size_t first, std::size_t count) {
    return {x.begin() + static_cast<std::ptrdiff_t>(first), x.begin() + static_cast<std::ptrdiff_t>(first + count)};
  }

  // softmax(q·kᵀ/√size)·v over the positions up to the query's own.
  static Row attend(const Row& query, const Rows& keys, const Rows& values, std::size_t last) {
    Row weights(last + 1);
    double largest = -1e300;
    for (std::size_t t = 0; t <= last; ++t) {
      double dot = 0;
      for (std::size_t i = 0; i < query.size(); ++i) dot += query[i] * keys[t][i];
      weights[t] = dot / std::sqrt(static_cast<double>(query.size()));
      largest = std::max(largest, weights[t]);
    }
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - largest);
    Row out(query.size(), 0.0);
    for (std::size_t t = 0; t <= last; ++t) {
      for (std::size_t i = 0; i < out.size(); ++i) out[i] += weights[t] / sum * values[t][i];
    }
    return out;
  }

  Rows gpt2(const std::vector<int>& tokens) const {
    const std::size_t width = whole("n_embd");
    const std::size_t heads = whole("n_head");
    const std::size_t size = width / heads;
    Rows stream;
    for (std::size_t t = 0; t < tokens.size(); ++t) {
      stream.push_back(part(at("transformer.wte.weight"), static_cast<std::size_t>(tokens[t]) * width, width));
      add(stream.back(), part(at("transformer.wpe.weight"), t * width, width));
    }
    for (std::size_t i = 0; i < whole("n_layer"); ++i) {
      const std::string layer = "transformer.h." + std::to_string(i) + ".";
      Rows qkv;
      for (const Row& x : stream) qkv.push_back(conv(layer_norm(x, layer + "ln_1"), layer + "attn.c_attn"));
      for (std::size_t t = 0; t < stream.size(); ++t) {
        Row joined;
        for (std::size_t head = 0; head < heads; ++head) {
          Rows keys;
          Rows values;
          for (std::size_t u = 0; u <= t; ++u) {
            keys.push_back(part(qkv[u], width + head * size, size));
            values.push_back(part(qkv[u], 2 * width + head * size, size));
          }
          const Row result = attend(part(qkv[t], head * size, size), keys, values, t);
          joined.insert(joined.end(), result.begin(), result.end());
        }
        add(stream[t], conv(joined, layer + "attn.c_proj"));
      }
      for (Row& x : stream) {
        Row hidden = conv(layer_norm(x, layer + "ln_2"), layer + "mlp.c_fc");
        for (double& v : hidden) {  // gelu_new
          v = 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (v + 0.044715 * v * v * v)));
        }
        add(x, conv(hidden, layer + "mlp.c_proj"));
      }
    }
    Rows logits;
    for (const Row& x : stream) logits.push_back(linear(layer_norm(x, "transformer.ln_f"), "transformer.wte"));
    return logits;
  }

  json rope() const {
    for (const char* key : {"rope_parameters", "rope_scaling"}) {
      if (config_.contains(key) && config_.at(key).is_object()) return config_.at(key);
    }
    return json::object();
  }

  double frequency(std::size_t i, std::size_t size) const {
    const json about = rope();
    const double theta = about.value("rope_theta", config_.value("rope_theta", 10000.0));
    const double plain = 1 / std::pow(theta, 2.0 * static_cast<double>(i) / static_cast<double>(size));
    if (about.value("rope_type", "default") == "default") return plain;
    const double context = about.at("original_max_position_embeddings");
    const double low = about.at("low_freq_factor");
    const double high = about.at("high_freq_factor");
    const double wavelength = 2 * std::acos(-1.0) / plain;
    if (wavelength < context / high) return plain;
    if (wavelength > context / low) return plain / about.at("factor").get<double>();
    const double smooth = (context / wavelength - low) / (high - low);
    return (1 - smooth) * plain / about.at("factor").get<double>() + smooth * plain;
  }

  // x·cos + rotate_half(x)·sin
  void rotate(Row& x, std::size_t position) const {
    const std::size_t half = x.size() / 2;
    for (std::size_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(position) * frequency(i, x.size());
      const double a = x[i];
      const double b = x[half + i];
      x[i] = a * std::cos(angle) - b * std::sin(angle);
      x[half + i] = b * std::cos(angle) + a * std::sin(angle);
    }
  }

  // Heads of one position, rotated; normalized first where the model has a gain of this name.
  Rows heads_of(const Row& x, std::size_t size, const std::string& gain, std::size_t position) const {
    Rows heads;
    for (std::size_t first = 0; first < x.size(); first += size) {
      Row head = part(x, first, size);
      if (tensors_.contains(gain + ".weight")) head = rms_norm(head, gain);
      rotate(head, position);
      heads.push_back(head);
    }
    return heads;
  }

  void llama_attention(Rows& stream, const std::string& layer) const {
    const std::size_t heads = whole("num_attention_heads");
    const std::size_t kv_heads = config_.value("num_key_value_heads", heads);
    const std::size_t size = config_.value("head_dim", whole("hidden_size") / heads);
    const std::string attention = layer + "self_attn.";
    std::vector<Rows> queries;
    std::vector<Rows> keys(kv_heads);
    std::vector<Rows> values(kv_heads);
    for (std::size_t t = 0; t < stream.size(); ++t) {
      const Row x = rms_norm(stream[t], layer + "input_layernorm");
      queries.push_back(heads_of(linear(x, attention + "q_proj"), size, attention + "q_norm", t));
      const Rows key = heads_of(linear(x, attention + "k_proj"), size, attention + "k_norm", t);
      const Row value = linear(x, attention + "v_proj");
      for (std::size_t head = 0; head < kv_heads; ++head) {
        keys[head].push_back(key[head]);
        values[head].push_back(part(value, head * size, size));
      }
    }
    for (std::size_t t = 0; t < stream.size(); ++t) {
      Row joined;
      for (std::size_t head = 0; head < heads; ++head) {
        const std::size_t shared = head / (heads / kv_heads);
        const Row result = attend(queries[t][head], keys[shared], values[shared], t);
        joined.insert(joined.end(), result.begin(), result.end());
      }
      add(stream[t], linear(joined, attention + "o_proj"));
    }
  }

  Rows llama(const std::vector<int>& tokens) const {
    const std::size_t width = whole("hidden_size");
    Rows stream;
    for (const int token : tokens) {
      stream.push_back(part(at("model.embed_tokens.weight"), static_cast<std::size_t>(token) * width, width));
    }
    for (std::size_t i = 0; i < whole("num_hidden_layers"); ++i) {
      const std::string layer = "model.layers." + std::to_string(i) + ".";
      llama_attention(stream, layer);
      for (Row& x : stream) {
        const Row normed = rms_norm(x, layer + "post_attention_layernorm");
        Row hidden = linear(normed, layer + "mlp.gate_proj");
        const Row up = linear(normed, layer + "mlp.up_proj");
        for (std::size_t k = 0; k < hidden.size(); ++k) hidden[k] = hidden[k] / (1 + std::exp(-hidden[k])) * up[k];
        add(x, linear(hidden, layer + "mlp.down_proj"));
      }
    }
    Rows logits;
    const bool tied = config_.value("tie_word_embeddings", false);
    for (const Row& x : stream) {
      logits.push_back(linear(rms_norm(x, "model.norm"), tied ? "model.embed_tokens" : "lm_head"));
    }
    return logits;
  }

  json config_;
  std::map<std::string, Row> tensors_;
};

}  // namespace quaver::test
