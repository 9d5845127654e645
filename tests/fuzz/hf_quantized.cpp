#include <unistd.h>

#include "fuzz/reader_properties.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const std::filesystem::path folder = [] {
    auto path = std::filesystem::temp_directory_path() / ("quaver-fuzz-" + std::to_string(::getpid()));
    std::filesystem::create_directories(path);
    return path;
  }();
  quaver::test::fuzz_hf_quantized(folder, {reinterpret_cast<const char*>(data), size});
  return 0;
}
