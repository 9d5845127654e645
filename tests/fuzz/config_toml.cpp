// libFuzzer target: any bytes as a TOML configuration. Seeds: corpus/config.
#include <cstddef>
#include <cstdint>
#include <string>

#include "fuzz/config_property.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  quaver::test::fuzz_config_toml(std::string(reinterpret_cast<const char*>(data), size));
  return 0;
}
