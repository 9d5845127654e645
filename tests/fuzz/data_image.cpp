#include <cstddef>
#include <cstdint>
#include <string_view>

#include "data/fuzz_targets.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  quaver::test::fuzz_image({reinterpret_cast<const char*>(data), size});
  return 0;
}
