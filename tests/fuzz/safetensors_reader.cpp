// libFuzzer target: the safetensors reader on arbitrary bytes. Either Error, or every tensor lies inside the file.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "io/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto file = std::as_bytes(std::span(data, size));
  try {
    std::size_t total = 0;
    for (const quaver::TensorEntry& tensor : quaver::parse_safetensors(file, "input").tensors) {
      if (!tensor.data.empty() &&
          (tensor.data.data() < file.data() || tensor.data.data() + tensor.data.size() > file.data() + file.size())) {
        std::abort();
      }
      total += tensor.data.size();
    }
    if (total > size) std::abort();  // tensors overlap
  } catch (const quaver::Error&) {
  }
  return 0;
}
