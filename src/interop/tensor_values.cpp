#include "interop/tensor_values.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "formats/quantize.h"

namespace quaver {

namespace {

constexpr Size at_once = 16384;

Size bytes_of(Format format, Size count) { return count * info(format).storage_bits / 8; }

// Calls work(first, count) for pieces that threads share out.
template <class Work>
void in_pieces(Size count, const Work& work) {
  const Size pieces = (count + at_once - 1) / at_once;
#pragma omp parallel for schedule(static) if (pieces > 1)
  for (Size piece = 0; piece < pieces; ++piece) {
    const Size first = piece * at_once;
    work(first, std::min(at_once, count - first));
  }
}

// The codes of a file may be unaligned.
std::vector<float> decoded(Format format, const std::byte* codes, Size count) {
  std::vector<float> values(static_cast<std::size_t>(count));
  in_pieces(count, [&](Size first, Size some) {
    std::vector<std::byte> aligned(static_cast<std::size_t>(bytes_of(format, some)));
    std::memcpy(aligned.data(), codes + bytes_of(format, first), aligned.size());
    decode_array(format, aligned.data(), 1.0F, some, values.data() + first);
  });
  return values;
}

void encode(Format format, const std::vector<float>& values, std::byte* out) {
  in_pieces(static_cast<Size>(values.size()), [&](Size first, Size some) {
    encode_array(format, values.data() + first, 1.0F, some, out + bytes_of(format, first));
  });
}

Finite finiteness(const std::vector<float>& values) {
  std::atomic<bool> finite = true;
  in_pieces(static_cast<Size>(values.size()), [&](Size first, Size some) {
    const float* begin = values.data() + first;
    if (!std::all_of(begin, begin + some, [](float value) { return std::isfinite(value); })) finite = false;
  });
  return finite ? Finite::yes : Finite::no;
}

// [rows × cols] from [cols × rows].
std::vector<float> transposed(const std::vector<float>& values, Size rows, Size cols) {
  std::vector<float> out(values.size());
#pragma omp parallel for schedule(static)
  for (Size row = 0; row < rows; ++row) {
    for (Size col = 0; col < cols; ++col) {
      out[static_cast<std::size_t>(row * cols + col)] = values[static_cast<std::size_t>(col * rows + row)];
    }
  }
  return out;
}

}  // namespace

ParameterCodes::ParameterCodes(Format format, Size count)
    : format_(format), codes_(static_cast<std::size_t>(bytes_of(format, count))) {}

Finite ParameterCodes::take(const HfTensor& place, const WeightReader& weight) {
  std::vector<float> values = weight.values();
  if (finiteness(values) == Finite::no) return Finite::no;
  if (place.layout == HfLayout::transposed) values = transposed(values, place.rows, place.cols);
  encode(format_, values, codes_.data() + bytes_of(format_, place.offset));
  filled_ += place.count();
  return Finite::yes;
}

std::vector<float> tensor_values(const HfTensor& tensor, const StoredParameter& parameter) {
  const std::byte* const first = parameter.bytes.data() + bytes_of(parameter.format, tensor.offset);
  std::vector<float> values = decoded(parameter.format, first, tensor.count());
  return tensor.layout == HfLayout::transposed ? transposed(values, tensor.cols, tensor.rows) : values;
}

}  // namespace quaver
