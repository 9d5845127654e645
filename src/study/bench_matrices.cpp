#include "study/bench_matrices.h"

#include <algorithm>

#include "formats/quantize.h"
#include "formats/random.h"

namespace quaver {

std::byte* BenchMatrices::take(std::size_t bytes) {
  memory_.push_back(engine_.device().allocate(std::max<std::size_t>(bytes, 16)));
  return memory_.back().get();
}

View BenchMatrices::make(Size rows, Size cols, Format format) {
  View view{nullptr, format, rows, cols};
  view.data = take(static_cast<std::size_t>(view.bytes()));
  return view;
}

View BenchMatrices::normal(Size rows, Size cols, Format format, std::uint32_t stream) {
  const View made = make(rows, cols, format);
  const Size period = std::min<Size>(rows, 64);
  std::vector<float> values(static_cast<std::size_t>(period * cols));
  random_normals({17, 0, stream}, 0, values.data(), period * cols);
  const std::size_t element = static_cast<std::size_t>(info(format).storage_bits) / 8;
  std::vector<std::byte> bytes(values.size() * element);
  encode_array(format, values.data(), 1, period * cols, bytes.data());
  for (Size row = 0; row < rows; row += period) {
    const Size count = std::min(period, rows - row);
    engine_.device().upload(bytes.data(), made.row_data(row), static_cast<std::size_t>(count * cols) * element);
  }
  return made;
}

}  // namespace quaver
