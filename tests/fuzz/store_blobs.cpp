#include <unistd.h>

#include "fuzz/reader_properties.h"

namespace {

// Never committed, and the file has no name: nothing is left behind.
quaver::Database& database() {
  static quaver::Database store("/dev/shm/quaver-fuzz-" + std::to_string(getpid()), quaver::Database::Access::write,
                                std::chrono::seconds(1));
  static const bool prepared = [] {
    quaver::prepare_store(store);
    for (const char* end : {"", "-wal", "-shm"}) unlink((store.path().string() + end).c_str());
    store.execute("BEGIN");
    return true;
  }();
  static_cast<void>(prepared);
  return store;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  quaver::test::fuzz_store_blobs(database(), std::as_bytes(std::span(data, size)));
  return 0;
}
