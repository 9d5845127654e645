// libFuzzer target: any bytes as command-line flags, one a line. Seeds: corpus/config_flags.
#include <cstddef>
#include <cstdint>
#include <string>

#include "fuzz/config_property.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  quaver::test::fuzz_config_flags(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
