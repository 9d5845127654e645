// The C interface: the same results as the C++ one, and errors instead of crashes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/random_matrix.h"
#include "support/temporary_folder.h"

#include "quaver/format.h"
#include "quaver/linear.h"
#include "quaver/quantize.h"
#include "quaver/quaver.h"
#include "quaver/recipe.h"
#include "quaver/runs.h"

namespace quaver {
namespace {

using testing::HasSubstr;

TEST(CInterfaceTest, HasTheVersionOfTheBuild) {
  EXPECT_EQ(quaver_abi_version(), static_cast<std::uint32_t>(QUAVER_ABI_VERSION));
  EXPECT_STREQ(quaver_version(), QUAVER_VERSION);
  const std::string header = std::to_string(QUAVER_VERSION_MAJOR) + '.' + std::to_string(QUAVER_VERSION_MINOR) + '.' +
                             std::to_string(QUAVER_VERSION_PATCH);
  EXPECT_EQ(header, QUAVER_VERSION);
}

TEST(CInterfaceTest, CastsAsEncodeAndDecodeDo) {
  std::vector<float> x = test::random_matrix(1, 4096, 1);
  x.insert(x.end(), {0.0F, -0.0F, 1e30F, -1e30F, 1e-30F, INFINITY, 448.0F, 464.0F, 6.0F});
  for (const Format format : all_formats) {
    quaver_format found = -1;
    ASSERT_EQ(quaver_format_by_name(info(format).name.data(), &found), QUAVER_OK);
    ASSERT_EQ(found, static_cast<quaver_format>(format));
    std::vector<float> values(x.size()), decoded(x.size());
    std::vector<std::uint32_t> codes(x.size());
    ASSERT_EQ(quaver_cast(found, x.data(), values.data(), x.size()), QUAVER_OK);
    ASSERT_EQ(quaver_encode(found, x.data(), codes.data(), x.size()), QUAVER_OK);
    ASSERT_EQ(quaver_decode(found, codes.data(), decoded.data(), x.size()), QUAVER_OK) << quaver_last_error();
    for (std::size_t i = 0; i < x.size(); ++i) {
      ASSERT_EQ(codes[i], encode(format, x[i]));
      ASSERT_EQ(values[i], decode(format, codes[i]));
      ASSERT_EQ(decoded[i], values[i]);
    }
  }
}

TEST(CInterfaceTest, QuantizesAsTheClassDoes) {
  const std::vector<float> x = test::random_matrix(20, 48, 2);
  quaver_cast_settings settings;
  quaver_default_cast(&settings);
  ASSERT_EQ(quaver_recipe_spec("nvfp4", QUAVER_ROLE_DY, QUAVER_COLUMNWISE, &settings.spec), QUAVER_OK);
  settings.side = QUAVER_COLUMNWISE;
  settings.seed = 9;
  settings.detail = QUAVER_FULL_STATISTICS;
  quaver_matrix* matrix = nullptr;
  ASSERT_EQ(quaver_quantize(x.data(), 20, 48, &settings, &matrix), QUAVER_OK) << quaver_last_error();
  const QuantizedMatrix expected(
      {x, 20, 48}, {.spec = find_recipe("nvfp4").dy.columns, .side = Side::columns, .seed = 9, .detail = Detail::full});
  quaver_matrix_view view{};
  ASSERT_EQ(quaver_matrix_get(matrix, &view), QUAVER_OK);
  EXPECT_EQ(view.rows, 48);
  ASSERT_EQ(static_cast<std::size_t>(view.rows * view.row_bytes), expected.codes().size());
  EXPECT_EQ(std::memcmp(view.codes, expected.codes().data(), expected.codes().size()), 0);
  std::vector<float> values(x.size());
  ASSERT_EQ(quaver_dequantize(matrix, values.data(), values.size()), QUAVER_OK);
  EXPECT_EQ(values, expected.dequantize());
  EXPECT_EQ(quaver_dequantize(matrix, values.data(), 3), QUAVER_INVALID);
  quaver_statistics seen{};
  ASSERT_EQ(quaver_matrix_statistics(matrix, &seen), QUAVER_OK);
  EXPECT_EQ(seen.sqnr_db, expected.statistics().sqnr_db());
  std::vector<float> out(48 * 48), product(48 * 48);
  ASSERT_EQ(quaver_gemm(matrix, matrix, out.data(), out.size()), QUAVER_OK);
  gemm(expected, expected, product);
  EXPECT_EQ(out, product);
  EXPECT_EQ(quaver_gemm(matrix, matrix, out.data(), 1), QUAVER_FAILED);
  quaver_matrix_free(matrix);
}

TEST(CInterfaceTest, QuantizesInDeviceMemoryAsOnTheHost) {
  std::vector<float> x = test::random_matrix(20, 48, 2);
  quaver_cast_settings settings;
  quaver_default_cast(&settings);
  settings.side = QUAVER_COLUMNWISE;
  const auto on_cpu = [](std::vector<float>& values, int64_t rows, int64_t cols) {
    return quaver_device_matrix{values.data(), rows, cols, QUAVER_F32, QUAVER_DEVICE_CPU, 0, nullptr};
  };
  const quaver_device_matrix from = on_cpu(x, 20, 48);
  quaver_device_memory memory{};
  ASSERT_EQ(quaver_cast_memory(&from, &settings, &memory), QUAVER_OK) << quaver_last_error();
  std::vector<std::byte> kept(memory.kept_bytes), scratch(memory.scratch_bytes);
  memory.kept = kept.data();
  memory.scratch = scratch.data();
  quaver_matrix* made = nullptr;
  ASSERT_EQ(quaver_quantize_on_device(&from, &settings, &memory, &made), QUAVER_OK) << quaver_last_error();
  quaver_matrix* expected = nullptr;
  ASSERT_EQ(quaver_quantize(x.data(), 20, 48, &settings, &expected), QUAVER_OK);
  quaver_matrix_view found{}, wanted{};
  ASSERT_EQ(quaver_matrix_get(made, &found), QUAVER_OK);
  ASSERT_EQ(quaver_matrix_get(expected, &wanted), QUAVER_OK);
  EXPECT_EQ(found.on_gpu, 0);
  EXPECT_EQ(*found.tensor_scale_address, wanted.tensor_scale);
  EXPECT_EQ(std::memcmp(found.codes, wanted.codes, static_cast<std::size_t>(found.rows * found.row_bytes)), 0);
  std::vector<float> values(x.size()), wanted_values(x.size());
  const quaver_device_matrix to = on_cpu(values, 48, 20);
  EXPECT_EQ(quaver_dequantize_on_device(made, &to), QUAVER_OK);
  EXPECT_EQ(quaver_dequantize(expected, wanted_values.data(), wanted_values.size()), QUAVER_OK);
  EXPECT_EQ(values, wanted_values);
  EXPECT_EQ(quaver_gemm_on_device(made, expected, &to), QUAVER_FAILED);  // 48 × 48 do not fit
  EXPECT_EQ(quaver_quantize_on_device(&from, &settings, nullptr, &made), QUAVER_INVALID);
  memory.kept_bytes = 1;
  EXPECT_EQ(quaver_quantize_on_device(&from, &settings, &memory, &made), QUAVER_FAILED);
  quaver_matrix_free(made);
  quaver_matrix_free(expected);
}

TEST(CInterfaceTest, ALayerIsTheClassOfTheCppHeaders) {
  const std::vector<float> x = test::random_matrix(8, 32, 3);
  const std::vector<float> w = test::random_matrix(16, 32, 4);
  const std::vector<float> dy = test::random_matrix(8, 16, 5);
  const char* const more[] = {"precision.margin=1"};
  quaver_linear_settings settings{};
  settings.in = 32;
  settings.out = 16;
  settings.device = QUAVER_DEVICE_CPU;
  settings.recipe = "fp8-delayed";
  settings.settings = more;
  settings.setting_count = 1;
  settings.seed = 1;
  quaver_linear* layer = nullptr;
  ASSERT_EQ(quaver_linear_new(&settings, &layer), QUAVER_OK) << quaver_last_error();
  LinearLayer expected({.in = 32, .out = 16, .recipe = "fp8-delayed", .settings = {"precision.margin=1"}});
  std::vector<float> y(128), dx(256), dw(512), y2(128), dx2(256);
  ASSERT_EQ(quaver_linear_set_weight(layer, w.data(), w.size()), QUAVER_OK);
  ASSERT_EQ(quaver_linear_forward(layer, x.data(), 8, QUAVER_TRAIN, y.data()), QUAVER_OK) << quaver_last_error();
  ASSERT_EQ(quaver_linear_backward(layer, dy.data(), 8, dx.data()), QUAVER_OK) << quaver_last_error();
  ASSERT_EQ(quaver_linear_weight_gradient(layer, dw.data(), dw.size()), QUAVER_OK);
  expected.set_weight(w);
  expected.forward(x, y2);
  expected.backward(dy, dx2);
  EXPECT_EQ(y, y2);
  EXPECT_EQ(dx, dx2);
  EXPECT_EQ(dw, expected.weight_gradient());
  ASSERT_EQ(quaver_linear_end_step(layer), QUAVER_OK);
  expected.end_step();
  float scale = 0;
  ASSERT_EQ(quaver_linear_scale(layer, QUAVER_ROLE_W, &scale), QUAVER_OK);
  EXPECT_EQ(scale, expected.scale(Role::w));
  quaver_statistics seen{};
  ASSERT_EQ(quaver_linear_statistics(layer, QUAVER_ROLE_X, &seen), QUAVER_OK);
  EXPECT_EQ(seen.amax, expected.statistics(Role::x).amax);
  const char* state = nullptr;
  ASSERT_EQ(quaver_linear_state(layer, &state), QUAVER_OK);
  EXPECT_EQ(state, expected.state());
  EXPECT_EQ(quaver_linear_load_state(layer, state), QUAVER_OK) << quaver_last_error();
  EXPECT_EQ(quaver_linear_load_state(layer, "{}"), QUAVER_FAILED);
  EXPECT_EQ(quaver_linear_load_state(layer, nullptr), QUAVER_INVALID);
  EXPECT_EQ(quaver_linear_forward(layer, x.data(), INT64_MAX, QUAVER_TRAIN, y.data()), QUAVER_INVALID);
  quaver_linear_free(layer);
}

TEST(CInterfaceTest, AWrongArgumentIsAnErrorWithARemedy) {
  quaver_format format = 0;
  EXPECT_EQ(quaver_format_by_name(nullptr, &format), QUAVER_INVALID);
  EXPECT_THAT(quaver_last_error(), HasSubstr("name is NULL"));
  EXPECT_STRNE(quaver_last_remedy(), "");
  EXPECT_EQ(quaver_format_by_name("\xff", &format), QUAVER_INVALID);
  EXPECT_EQ(quaver_format_by_name("e9m9", &format), QUAVER_FAILED);
  EXPECT_EQ(quaver_format_by_name("e4m3", nullptr), QUAVER_INVALID);
  const float x[4] = {};
  float out[4];
  std::uint32_t code = 256;
  EXPECT_EQ(quaver_cast(QUAVER_FORMATS, x, out, 4), QUAVER_INVALID);
  EXPECT_EQ(quaver_cast(-1, x, out, 4), QUAVER_INVALID);
  EXPECT_EQ(quaver_cast(QUAVER_E4M3, nullptr, out, 4), QUAVER_INVALID);
  EXPECT_EQ(quaver_decode(QUAVER_E4M3, &code, out, 1), QUAVER_INVALID);
  quaver_cast_settings settings;
  quaver_default_cast(&settings);
  quaver_matrix* matrix = nullptr;
  EXPECT_EQ(quaver_quantize(x, 2, 2, nullptr, &matrix), QUAVER_INVALID);
  EXPECT_EQ(quaver_quantize(x, -1, 2, &settings, &matrix), QUAVER_INVALID);
  EXPECT_EQ(quaver_quantize(x, INT64_MAX, INT64_MAX, &settings, &matrix), QUAVER_INVALID);
  settings.spec.rotation = 7;
  EXPECT_EQ(quaver_quantize(x, 2, 2, &settings, &matrix), QUAVER_INVALID);
  settings.spec.rotation = 0;
  settings.spec.block_rows = INT32_MIN;
  EXPECT_EQ(quaver_quantize(x, 2, 2, &settings, &matrix), QUAVER_FAILED);
  EXPECT_EQ(matrix, nullptr);
  EXPECT_EQ(quaver_gemm(nullptr, nullptr, out, 4), QUAVER_INVALID);
  quaver_linear* layer = nullptr;
  EXPECT_EQ(quaver_linear_new(nullptr, &layer), QUAVER_INVALID);
  quaver_linear_memory memory{};
  EXPECT_EQ(quaver_linear_pass_memory(nullptr, 1, QUAVER_F32, &memory), QUAVER_INVALID);
  EXPECT_EQ(quaver_linear_run_forward(nullptr, nullptr), QUAVER_INVALID);
  EXPECT_EQ(quaver_linear_end_steps(nullptr, 1), QUAVER_INVALID);
  EXPECT_EQ(quaver_linear_end_steps(&layer, 1), QUAVER_INVALID);
  quaver_store* store = nullptr;
  EXPECT_EQ(quaver_store_open("/nonexistent", &store), QUAVER_FAILED);
  quaver_matrix_free(nullptr);
  quaver_linear_free(nullptr);
  quaver_store_free(nullptr);
  quaver_table_free(nullptr);
}

TEST(CInterfaceTest, RunsALayerInDeviceMemoryAsTheClassDoes) {
  const std::vector<float> x = test::random_matrix(16, 32, 1), w = test::random_matrix(8, 32, 2);
  const std::vector<float> dy = test::random_matrix(16, 8, 3);
  quaver_linear_settings settings{};
  settings.in = 32;
  settings.out = 8;
  settings.device = QUAVER_DEVICE_CPU;
  settings.recipe = "fp8-block";
  settings.seed = 1;
  quaver_linear* layer = nullptr;
  ASSERT_EQ(quaver_linear_new(&settings, &layer), QUAVER_OK) << quaver_last_error();
  ASSERT_EQ(quaver_linear_set_device_weight(layer, w.data(), QUAVER_F32, nullptr), QUAVER_OK);
  quaver_linear_memory memory{};
  ASSERT_EQ(quaver_linear_pass_memory(layer, 16, QUAVER_F32, &memory), QUAVER_OK);
  std::vector<std::byte> kept(memory.kept), scratch(std::max(memory.forward_scratch, memory.backward_scratch));
  std::vector<float> y(16 * 8), dx(16 * 32), dw(8 * 32);
  quaver_linear_forward_pass forward{};
  forward.tokens = 16;
  forward.x = x.data();
  forward.y = y.data();
  forward.kept = kept.data();
  forward.kept_bytes = kept.size();
  forward.scratch = scratch.data();
  forward.scratch_bytes = scratch.size();
  ASSERT_EQ(quaver_linear_run_forward(layer, &forward), QUAVER_OK) << quaver_last_error();
  quaver_linear_backward_pass backward{};
  backward.tokens = 16;
  backward.dy = dy.data();
  backward.dx = dx.data();
  backward.weight_gradient = dw.data();
  backward.kept = kept.data();
  backward.kept_bytes = kept.size();
  backward.scratch = scratch.data();
  backward.scratch_bytes = scratch.size();
  ASSERT_EQ(quaver_linear_run_backward(layer, &backward), QUAVER_OK) << quaver_last_error();
  ASSERT_EQ(quaver_linear_end_steps(&layer, 1), QUAVER_OK);
  backward.kept_bytes = 3;
  EXPECT_EQ(quaver_linear_run_backward(layer, &backward), QUAVER_FAILED);
  EXPECT_THAT(quaver_last_error(), HasSubstr("kept has 3 bytes"));
  quaver_linear_free(layer);

  LinearLayer expected({.in = 32, .out = 8, .recipe = "fp8-block"});
  std::vector<float> expected_y(y.size()), expected_dx(dx.size());
  expected.set_weight(w);
  expected.forward(x, expected_y);
  expected.backward(dy, expected_dx);
  EXPECT_EQ(y, expected_y);
  EXPECT_EQ(dx, expected_dx);
  EXPECT_EQ(dw, expected.weight_gradient());
}

int stop_at_four(const quaver_step_metrics* metrics, void* user) {
  static_cast<std::vector<double>*>(user)->push_back(metrics->loss);
  return metrics->step == 4 ? 1 : 0;
}

TEST(CInterfaceTest, ATrainedRunStopsResumesAndIsReadBack) {
  const test::TemporaryFolder folder;
  const std::string directory = "run.dir=" + (folder.path() / "run").string();
  const char* const settings[] = {"train.steps=6", "train.device=cpu", directory.c_str()};
  std::vector<double> losses;
  quaver_training training{};
  training.toml =
      "preset = \"tiny\"\n[data]\nkind = \"synthetic\"\n[model]\nlayers = 1\nwidth = 32\nheads = 2\ncontext = 16\n"
      "[train]\nbatch = 2\neval_batches = 1\n";
  training.settings = settings;
  training.setting_count = 3;
  training.on_step = stop_at_four;
  training.user = &losses;
  quaver_training_result result{};
  ASSERT_EQ(quaver_train(&training, &result), QUAVER_OK) << quaver_last_error();
  EXPECT_EQ(result.stopped, 1);
  EXPECT_EQ(losses.size(), 4U);
  EXPECT_EQ(quaver_train(&training, &result), QUAVER_FAILED);  // the folder holds a run
  training.resume = result.directory;
  training.toml = nullptr;
  training.setting_count = 0;
  const std::string run = result.directory;
  training.resume = run.c_str();
  ASSERT_EQ(quaver_train(&training, &result), QUAVER_OK) << quaver_last_error();
  EXPECT_EQ(result.stopped, 0);
  EXPECT_EQ(losses.size(), 6U);

  quaver_evaluation evaluation{};
  ASSERT_EQ(quaver_evaluate(run.c_str(), 2, &evaluation), QUAVER_OK) << quaver_last_error();
  EXPECT_EQ(evaluation.step, 6);
  EXPECT_GT(evaluation.loss, 0);

  quaver_store* store = nullptr;
  ASSERT_EQ(quaver_store_open(folder.path().c_str(), &store), QUAVER_OK) << quaver_last_error();
  ASSERT_EQ(quaver_store_runs(store), 1U);
  quaver_run_info recorded{};
  ASSERT_EQ(quaver_store_run(store, 0, &recorded), QUAVER_OK);
  EXPECT_STREQ(recorded.status, "finished");
  EXPECT_EQ(quaver_store_run(store, 1, &recorded), QUAVER_INVALID);
  quaver_table* table = nullptr;
  EXPECT_EQ(quaver_store_metrics(store, "no-such-run", &table), QUAVER_FAILED);
  ASSERT_EQ(quaver_store_run(store, 0, &recorded), QUAVER_OK);
  ASSERT_EQ(quaver_store_metrics(store, recorded.id, &table), QUAVER_OK) << quaver_last_error();
  std::vector<double> stored;
  for (std::size_t i = 0; i < quaver_table_columns(table); ++i) {
    quaver_column column{};
    ASSERT_EQ(quaver_table_column(table, i, &column), QUAVER_OK);
    if (std::string(column.name) == "loss") stored.assign(column.values, column.values + column.count);
  }
  EXPECT_EQ(stored, losses);
  quaver_table_free(table);
  quaver_store_free(store);
}

}  // namespace
}  // namespace quaver
