// The corpora of the readers' fuzz targets, and what small changes make of them, hold the targets' properties.
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <unistd.h>

#include "fuzz/reader_properties.h"
#include "support/temporary_folder.h"

namespace quaver {
namespace {

namespace fs = std::filesystem;

template <class Property>
void run_corpus(const std::string& name, const Property& property) {
  std::mt19937 random(7);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(__FILE__).parent_path() / "../fuzz/corpus" / name)) {
    const std::string text = test::contents(entry.path());
    property(text);
    for (int i = 0; i < 50 && !text.empty(); ++i) {
      std::string changed = text;
      changed[random() % changed.size()] = static_cast<char>(random());
      property(i % 5 == 0 ? changed.substr(0, random() % changed.size()) : changed);
    }
    ++files;
  }
  EXPECT_GT(files, 1) << name;
}

TEST(ReaderCorpora, HoldTheirProperties) {
  run_corpus("scale_book", test::fuzz_scale_book);
  run_corpus("scale_drift", test::fuzz_scale_drift);
  run_corpus("localization_map", test::fuzz_localization_map);
  run_corpus("metrics_log", test::fuzz_metrics_log);
  run_corpus("trainer_state", test::fuzz_trainer_state);
  run_corpus("provenance", test::fuzz_provenance);
  run_corpus("run_id", test::fuzz_run_id);
  run_corpus("gemm_cache", test::fuzz_gemm_cache);
  run_corpus("hf_config", test::fuzz_hf_config);
  run_corpus("hf_index", test::fuzz_hf_index);
  run_corpus("plan_patterns", test::fuzz_plan_patterns);
}

TEST(ReaderCorpora, OfModelFoldersHoldTheirProperties) {
  const test::TemporaryFolder folder;
  run_corpus("hf_quantized", [&](std::string_view text) { test::fuzz_hf_quantized(folder.path(), text); });
}

TEST(ReaderCorpora, OfTheStoreHoldTheirProperties) {
  const fs::path path = fs::path(::testing::TempDir()) / ("quaver-blobs-" + std::to_string(getpid()));
  {
    Database database(path, Database::Access::write, std::chrono::seconds(1));
    prepare_store(database);
    database.execute("BEGIN");
    run_corpus("store_blobs",
               [&](std::string_view text) { test::fuzz_store_blobs(database, std::as_bytes(std::span(text))); });
  }
  for (const char* end : {"", "-wal", "-shm"}) fs::remove(path.string() + end);
}

// Text far deeper than the stack: whoever walks it with a function that calls itself does not come back.
TEST(ReaderCorpora, DeepTextIsRefused) {
#ifdef QUAVER_SANITIZED
  const std::string deep(50'000, '[');  // frames are larger there, and reading slower
#else
  const std::string deep(200'000, '[');
#endif
  const std::string closed = deep + std::string(deep.size(), ']');
  const std::string book = R"({"version": 2, "sites": {"a/x": {"scale": )" + closed + R"(, "spec": )" + closed + "}}}";
  const std::string state =
      R"({"step": 3, "updates": 3, "skipped_batches": 0, "last_weight_cast": 3, "switched": false, "loss_scale_log2": 0,
          "loss_scale_clean_steps": 0, "notes": {}, "unit_factors": [], "scale_book": )";
  for (const std::string& text : {deep, closed, book}) {
    test::fuzz_scale_book(text);
    test::fuzz_scale_drift(text);
    test::fuzz_localization_map(text);
    test::fuzz_metrics_log(text);
    test::fuzz_provenance(text);
    test::fuzz_hf_config(text);
    test::fuzz_hf_index(text);
    test::fuzz_trainer_state(state + text + "}");
  }
}

}  // namespace
}  // namespace quaver
