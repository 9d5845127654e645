#include "fuzz/reader_properties.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  quaver::test::fuzz_hf_index({reinterpret_cast<const char*>(data), size});
  return 0;
}
