#include "report/page.h"

#include <cmath>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <random>

#include "markup.h"
#include "sha256.h"

#include "quaver/error.h"
#include "report/chart.h"
#include "report/theme.h"

namespace quaver::report {
namespace {

using testing::HasSubstr;
using testing::Not;

const std::string hostile_text = "</title></pre><script>alert(\"1\")</script> & 'x' \" onload=\"y\xFF\x01";

Markup read(const Page& page) {
  Markup markup = read_markup(page.html());
  EXPECT_EQ(markup.error, "");
  EXPECT_EQ(markup.named("script").size(), 1U);
  return markup;
}

TEST(PageTest, HostileTextStaysText) {
  Page page(hostile_text, hostile_text);
  page.heading(hostile_text).paragraph(hostile_text).note(hostile_text).code(hostile_text).footer(hostile_text);
  page.table({hostile_text, {{hostile_text}, {hostile_text, Align::right}}, {{hostile_text, hostile_text}}, {}});
  page.figure(to_svg(LineChart{}), hostile_text);
  page.key_values(std::vector<KeyValue>{{hostile_text, hostile_text}});
  page.headlines(std::vector<Headline>{{hostile_text, hostile_text, hostile_text}});
  page.details(hostile_text, [](Page& inside) { inside.paragraph(hostile_text); });
  const Markup markup = read(page);
  for (const Element& element : markup.elements) EXPECT_FALSE(element.attributes.contains("onload"));
}

TEST(PageTest, ThePolicyForbidsTheNetworkAndAllowsOnlyOurScript) {
  ASSERT_EQ(sha256_base64("abc"), "ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=");
  const Markup markup = read(Page("t"));
  std::string policy;
  for (const Element& meta : markup.named("meta")) {
    if (meta.attributes.contains("http-equiv")) policy = meta.attributes.at("content");
  }
  EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
  EXPECT_THAT(policy, HasSubstr("script-src 'sha256-" + sha256_base64(markup.named("script")[0].text) + "'"))
      << "the script changed: put this hash into chart_script_hash()";
}

TEST(PageTest, NothingIsFetched) {
  Page page("t");
  page.figure(to_svg(LineChart{}), "c");
  for (const Element& element : read(page).elements) {
    for (const char* attribute : {"src", "href", "xlink:href", "action", "srcset"}) {
      EXPECT_FALSE(element.attributes.contains(attribute)) << element.name;
    }
  }
  EXPECT_THAT(std::string(chart_css()) + std::string(page_css()), Not(HasSubstr("url(")));
  EXPECT_THAT(std::string(chart_css()) + std::string(page_css()), Not(HasSubstr("@import")));
}

TEST(PageTest, TablesHaveScopedHeadersAndAlignedCells) {
  Page page("t");
  page.table({"Caption", {{"recipe"}, {"loss", Align::right}}, {{"bf16", "3.28"}, {"fp8", "3.29"}}, {0}});
  const Markup markup = read(page);
  std::size_t columns = 0;
  std::size_t rows = 0;
  for (const Element& th : markup.named("th")) {
    columns += th.attributes.at("scope") == "col" ? 1 : 0;
    rows += th.attributes.at("scope") == "row" ? 1 : 0;
  }
  EXPECT_EQ(columns, 2U);
  EXPECT_EQ(rows, 2U);
  for (const Element& td : markup.named("td")) EXPECT_EQ(td.attributes.at("class"), "r");
  EXPECT_EQ(markup.with_class("strong").size(), 1U);
  EXPECT_THROW(page.table({"", {{"a"}}, {{"1", "2"}}, {}}), Error);
}

TEST(PageTest, HeadingsHaveDistinctAnchors) {
  Page page("t");
  page.heading("Loss & time").heading("Loss — time").heading("日本").heading("x", Page::Level::subsection);
  std::set<std::string> anchors;
  const Markup markup = read(page);
  for (const Element& h2 : markup.named("h2")) anchors.insert(h2.attributes.at("id"));
  EXPECT_EQ(anchors, (std::set<std::string>{"loss-time", "loss-time-2", "section"}));
  EXPECT_EQ(markup.named("h3").size(), 1U);
}

// A report as `compare` would make it, on disk for a look with a browser.
class SampleReport : public testing::Test {
 protected:
  static LineChart loss_chart() {
    std::mt19937 random(8);
    std::normal_distribution<double> noise(0, 0.06);
    LineChart chart;
    chart.title = "Training loss";
    chart.x_label = "step";
    chart.y_label = "cross-entropy, nats per token";
    chart.smoothing = 0.98;
    const struct {
      const char* name;
      double offset;
      int diverges;
    } runs[] = {
        {"bf16", 0, 0}, {"fp8 delayed", 0.02, 0}, {"mxfp8", 0.012, 0}, {"nvfp4", 0.06, 0}, {"fp8 unscaled", 0.1, 1500}};
    for (const auto& run : runs) {
      Series series{run.name, {}, {}};
      for (int step = 0; step < 5000; ++step) {
        const double t = step;
        double loss = 3.2 + run.offset + 7.6 * std::exp(-t / 250) + 0.9 * std::exp(-t / 1800) + noise(random);
        if (run.diverges > 0 && step > run.diverges) loss += 0.004 * (step - run.diverges);
        if (run.diverges > 0 && step > run.diverges + 900) loss = std::nan("");
        series.x.push_back(t);
        series.y.push_back(loss);
      }
      chart.series.push_back(std::move(series));
    }
    chart.y_max = 7;
    chart.references = {{3.28, "target 3.28"}};
    return chart;
  }

  static LineChart rate_chart() {
    LineChart chart;
    chart.title = "Gradient norm against learning rate";
    chart.x_label = "learning rate";
    chart.y_label = "gradient norm";
    chart.x_scale = chart.y_scale = Scale::log;
    for (int s = 0; s < 2; ++s) {
      Series series{s == 0 ? "bf16" : "fp8 delayed", {}, {}};
      for (double rate = 1e-5; rate < 2e-2; rate *= 1.6) {
        series.x.push_back(rate);
        series.y.push_back(0.3 + 4e5 * std::pow(rate, 2.2) * (1 + 0.4 * s));
      }
      chart.series.push_back(series);
    }
    return chart;
  }

  static BarChart memory_chart() {
    BarChart chart;
    chart.title = "Peak memory";
    chart.unit = Unit::bytes;
    chart.parts = {"weights", "optimizer", "activations", "gradients"};
    const double gib = 1073741824.0;
    chart.bars = {{"bf16", {0.48 * gib, 1.9 * gib, 3.1 * gib, 0.48 * gib}, "1.00×"},
                  {"fp8 delayed", {0.24 * gib, 0.96 * gib, 1.8 * gib, 0.48 * gib}, "0.58×"},
                  {"mxfp8", {0.25 * gib, 0.96 * gib, 1.85 * gib, 0.48 * gib}, "0.59×"},
                  {"nvfp4", {0.14 * gib, 0.96 * gib, 1.2 * gib, 0.48 * gib}, "0.47×"}};
    return chart;
  }

  static HeatGrid precision_map() {
    HeatGrid grid;
    grid.title = "Precision map: fp8 delayed";
    grid.categories = {"e4m3", "e5m2", "bf16"};
    for (const char* layer : {"qkv", "attn.out", "fc", "proj"}) {
      for (const char* gemm : {"fprop", "dgrad", "wgrad"}) grid.columns.push_back(std::string(layer) + " " + gemm);
    }
    for (int block = 0; block < 8; ++block) {
      grid.rows.push_back("blocks." + std::to_string(block));
      for (std::size_t c = 0; c < grid.columns.size(); ++c) {
        const bool edge = block == 0 || block == 7;
        grid.cells.push_back({edge         ? "bf16"
                              : c % 3 == 0 ? "e4m3"
                                           : "e5m2",
                              {},
                              "",
                              edge ? "kept in high precision" : ""});
      }
    }
    grid.cells[14] = {};
    return grid;
  }

  static HeatGrid sensitivity_map() {
    HeatGrid grid;
    grid.title = "Sensitivity: rise of the loss when one site is in low precision";
    grid.columns = {"qkv", "attn.out", "fc", "proj"};
    for (int block = 0; block < 6; ++block) {
      grid.rows.push_back("blocks." + std::to_string(block));
      for (int c = 0; c < 4; ++c) {
        grid.cells.push_back({"", 0.0004 * (block - 2.4) * (block - 2.4) * (c + 1) + 0.0001, "", ""});
      }
    }
    grid.cells[9].value = std::nan("");
    return grid;
  }
};

TEST_F(SampleReport, IsCompleteAndSmall) {
  Page page("Comparison of five recipes", "gpt-124m on tinystories · 5,000 steps · seed 1337");
  page.headlines(std::vector<Headline>{{"Best loss", "3.271", "bf16"},
                                       {"Closest 8-bit recipe", "+0.012", "mxfp8"},
                                       {"Memory", "0.47×", "nvfp4 against bf16"},
                                       {"Throughput", "1.61×", "fp8 delayed against bf16"}});
  page.paragraph("Five runs from the same seed and data order; they differ in the recipe alone.");
  page.note("fp8 unscaled diverged: its loss is not finite from step 2,400 on.");
  page.heading("Results");
  page.table({"Final metrics, mean of the last 100 steps. Best in bold.",
              {{"recipe"},
               {"loss", Align::right},
               {"against bf16", Align::right},
               {"tokens/s", Align::right},
               {"peak memory", Align::right},
               {"FLOPs in 8 bits", Align::right}},
              {{"bf16", "3.271", "", "182,400", "5.96 GiB", "0.0 %"},
               {"fp8 delayed", "3.291", "+0.020", "293,700", "3.48 GiB", "94.1 %"},
               {"mxfp8", "3.283", "+0.012", "286,150", "3.54 GiB", "94.1 %"},
               {"nvfp4", "3.331", "+0.060", "318,020", "2.78 GiB", "94.1 %"},
               {"fp8 unscaled", "diverged", "", "294,010", "3.48 GiB", "94.1 %"}},
              {0}});
  page.heading("Loss");
  page.figure(to_svg(loss_chart()), "Smoothed over about 50 steps; the raw values stand behind, faint.");
  page.figure(to_svg(rate_chart()), "Both axes are logarithmic.");
  page.heading("Memory and time");
  page.figure(to_svg(memory_chart()), "As planned by the dry run, and measured within 1 %.");
  BarChart time;
  time.title = "Time per step";
  time.unit = Unit::seconds;
  time.bars = {{"bf16", {0.0898}, ""}, {"fp8 delayed", {0.0558}, "0.62×"}, {"mxfp8", {0.0573}, "0.64×"}};
  page.figure(to_svg(time));
  page.heading("Precision");
  page.figure(to_svg(precision_map()), "Operand format of each GEMM. Blank: not a quantized site.");
  page.figure(to_svg(sensitivity_map()), "Dashed: the measurement was not finite.");
  page.heading("Runs");
  page.key_values(std::vector<KeyValue>{
      {"model", "gpt, 12 layers, 768 wide"}, {"tokens per step", "16,384"}, {"device", "cpu"}, {"seed", "1337"}});
  page.details("Configuration of bf16", [](Page& inside) {
    inside.code("[model]\nkind = \"gpt\"\nlayers = 12\n\n[precision]\nrecipe = \"bf16\"");
  });
  page.footer("Written by quaver compare.");
  const std::string html = page.html();
  EXPECT_EQ(read(page).named("figure").size(), 6U);
  EXPECT_LT(html.size(), 600'000U);
  std::ofstream(std::filesystem::path(testing::TempDir()) / "quaver_sample_report.html") << html;
}

}  // namespace
}  // namespace quaver::report
