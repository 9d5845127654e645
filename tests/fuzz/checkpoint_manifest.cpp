// libFuzzer target: the manifest reader on arbitrary text, as it is and under a checksum that agrees, so that what
// stands behind the checksum is reached. A manifest that is accepted must survive being written and read again.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "train/checkpoint_store.h"

namespace {

void check(std::string_view text) {
  try {
    const quaver::CheckpointManifest manifest = quaver::parse_manifest(text, "input");
    const quaver::CheckpointManifest again = quaver::parse_manifest(quaver::render_manifest(manifest), "again");
    if (again.step != manifest.step || again.files != manifest.files) std::abort();
  } catch (const quaver::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::string text(reinterpret_cast<const char*>(data), size);
  check(text);
  constexpr char digits[] = "0123456789abcdef";
  const std::uint32_t crc = quaver::crc32c(std::as_bytes(std::span(data, size)));
  text += "\"manifest_crc32c\": \"";
  for (int shift = 28; shift >= 0; shift -= 4) text += digits[(crc >> shift) & 0xFU];
  text += "\"\n}\n";
  check(text);
  return 0;
}
