// config.json of a Hugging Face model folder, read and written: GPT-2, Llama 2 and 3, Mistral, SmolLM2, Qwen2 and 2.5,
// Qwen3. What differs from these architectures is refused by name: a model that is nearly one of them would be read
// without complaint and compute something else.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "models/model_config.h"

namespace quaver {

// Every field that decides the shape is set: heads, head size, vocabulary, context, head. Throws Error, naming the
// source and the field, for what is malformed, out of bounds or not supported.
ModelConfig parse_hf_config(std::string_view text, std::string_view source);
ModelConfig read_hf_config(const std::filesystem::path& folder);

// Error where the model, which reads full attention in the context of its folder, would not in this one.
void check_context(const std::filesystem::path& folder, Size context);

// The text of a folder's config.json. Throws Error where there is none.
std::string hf_config_text(const std::filesystem::path& folder);

// The config.json for a resolved model, whose weights have this dtype ("float32", "bfloat16"). `original` is the text
// of the config.json that the model came with, whose other fields are kept; empty: there is none. Throws Error where no
// architecture of transformers computes what this model does.
std::string render_hf_config(const ModelConfig& model, std::string_view dtype, std::string_view original = {});

}  // namespace quaver
