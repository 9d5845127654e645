// How progress looks at its limits, character by character, and when it appears.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <pty.h>
#include <unistd.h>

#include "support/variable.h"

#include "cli/option_checks.h"
#include "cli/progress.h"
#include "cli/startup.h"
#include "cli/study.h"
#include "cli/table.h"
#include "quaver/error.h"

namespace quaver::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

ProgressLine line_at(std::int64_t step) {
  ProgressLine line;
  line.step = step;
  line.steps = 200;
  line.loss = 2.34567;
  line.learning_rate = 3e-4;
  line.gradient_norm = 0.515;
  line.tokens_per_second = 12345;
  line.tflops = 1.234;
  line.low_precision_percent = 91.75;
  return line;
}

TEST(DurationText, ChangesUnitsAtTheirLimits) {
  EXPECT_EQ(format_duration(0), "0s");
  EXPECT_EQ(format_duration(59.4), "59s");
  EXPECT_EQ(format_duration(59.5), "1m00s");
  EXPECT_EQ(format_duration(60), "1m00s");
  EXPECT_EQ(format_duration(3599), "59m59s");
  EXPECT_EQ(format_duration(125), "2m05s");
  EXPECT_EQ(format_duration(3600), "1h00m");
  EXPECT_EQ(format_duration(3659), "1h00m");
  EXPECT_EQ(format_duration(86399), "23h59m");
  EXPECT_EQ(format_duration(86400), "1d00h");
  EXPECT_EQ(format_duration(2 * 86400 + 5 * 3600 + 59 * 60), "2d05h");
  EXPECT_EQ(format_duration(1e9), "11574d01h");
  for (const double unknown : {1.001e9, 1e300, -0.4, -1.0, double{NAN}, double{INFINITY}}) {
    EXPECT_EQ(format_duration(unknown), "--");
  }
}

TEST(CountText, ChangesUnitsAtTheirLimits) {
  EXPECT_EQ(format_count(0), "0");
  EXPECT_EQ(format_count(0.25), "0.25");
  EXPECT_EQ(format_count(9.994), "9.99");
  EXPECT_EQ(format_count(9.996), "10.0");
  EXPECT_EQ(format_count(99.94), "99.9");
  EXPECT_EQ(format_count(99.96), "100");
  EXPECT_EQ(format_count(999), "999");
  EXPECT_EQ(format_count(1000), "1.00k");
  EXPECT_EQ(format_count(9995), "10.0k");
  EXPECT_EQ(format_count(12345), "12.3k");
  EXPECT_EQ(format_count(99'950), "100k");
  EXPECT_EQ(format_count(999'499), "999k");
  EXPECT_EQ(format_count(999'500), "1.00M");
  EXPECT_EQ(format_count(1e15), "1.00P");
  EXPECT_EQ(format_count(1e18), "1000P");
  EXPECT_EQ(format_count(-1500), "-1.50k");
  EXPECT_EQ(format_count(NAN), "--");
}

TEST(ByteText, UsesBinaryUnits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(1023), "1023 B");
  EXPECT_EQ(format_bytes(1024), "1.00 KiB");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(1023 * 1024), "1.00 MiB");
  EXPECT_EQ(format_bytes(3'366'977), "3.21 MiB");
  EXPECT_EQ(format_bytes(std::uint64_t{12} << 30), "12.0 GiB");
  EXPECT_EQ(format_bytes(std::uint64_t{5} << 60), "5.00 EiB");
  EXPECT_EQ(format_bytes(std::numeric_limits<std::uint64_t>::max()), "16.0 EiB");
}

TEST(StepLine, CharacterByCharacter) {
  EXPECT_EQ(format_line(line_at(7), std::nullopt),
            "step   7/200  loss   2.3457  val        -  lr 3.00e-04  norm    0.515  12.3k tok/s    1.23 TFLOP/s  8-bit "
            " 91.8%  overflow    0  skipped   0  eta     --");
  ProgressLine line = line_at(200);
  line.validation_loss = 3.5;
  line.overflows = 12;
  line.skipped = 3;
  EXPECT_EQ(format_line(line, 65),
            "step 200/200  loss   2.3457  val   3.5000  lr 3.00e-04  norm    0.515  12.3k tok/s    1.23 TFLOP/s  8-bit "
            " 91.8%  overflow   12  skipped   3  eta  1m05s");
}

TEST(StepBar, CharacterByCharacter) {
  ProgressLine line = line_at(50);
  const auto bar = [&](int columns, Colors colors = Colors::off, Glyphs glyphs = Glyphs::ascii) {
    return format_bar(line, 65, columns, colors, glyphs);
  };
  EXPECT_EQ(bar(200),
            " 50/200  ======------------------  loss 2.3457  12.3k tok/s  1.23 TFLOP/s  8-bit 92%  lr 3.00e-04  norm "
            "0.52  ETA 1m05s");
  EXPECT_EQ(bar(41), " 50/200  ==------  loss 2.3457  ETA 1m05s");
  EXPECT_EQ(bar(40), " 50/200  ====--------------  loss 2.3457");
  EXPECT_EQ(bar(39), " 50/200  loss 2.3457  ETA 1m05s");
  EXPECT_EQ(bar(20), " 50/200  loss 2.3457");
  EXPECT_EQ(bar(19), " 50/200");
  line.validation_loss = 3.5;
  line.overflows = 1;
  line.skipped = 2;
  EXPECT_EQ(
      bar(200),
      " 50/200  ======------------------  loss 2.3457  val 3.5000  12.3k tok/s  1.23 TFLOP/s  8-bit 92%  overflow "
      "1  skipped 2  lr 3.00e-04  norm 0.52  ETA 1m05s");
  EXPECT_THAT(bar(200, Colors::on), HasSubstr("\x1b[36m======\x1b[0m------"));
  EXPECT_THAT(bar(200, Colors::on), HasSubstr("\x1b[1mloss 2.3457\x1b[0m"));
  EXPECT_THAT(bar(200, Colors::on), HasSubstr("\x1b[33moverflow 1\x1b[0m  \x1b[33mskipped 2\x1b[0m"));
  EXPECT_THAT(bar(200, Colors::off, Glyphs::unicode), HasSubstr("━━━━━━──────────────────  loss"));
  line.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(bar(200, Colors::on), HasSubstr("\x1b[31mloss nan\x1b[0m"));
}

TEST(StepBar, IsEmptyWhereNoStepsAreKnown) {
  ProgressLine line = line_at(0);
  line.steps = 0;
  EXPECT_THAT(format_bar(line, std::nullopt, 200, Colors::off, Glyphs::ascii), Not(HasSubstr("=")));
  line.step = line.steps = 3;
  EXPECT_THAT(format_bar(line, std::nullopt, 200, Colors::off, Glyphs::ascii),
              HasSubstr("3/3  ========================  loss"));
}

// Which fields are left out as the terminal becomes narrower, from one width down to another.
std::vector<std::string> left_out(int widest, int narrowest) {
  ProgressLine line = line_at(50);
  line.validation_loss = 3.5;
  line.overflows = 1;
  std::vector<std::string> gone;
  for (int columns = widest; columns >= narrowest; --columns) {
    const std::string text = format_bar(line, 65, columns, Colors::off, Glyphs::ascii);
    for (const char* field : {"50/200", "loss", "ETA", "tok/s", "val", "overflow", "TFLOP/s", "8-bit", "lr", "norm"}) {
      const bool known = std::ranges::find(gone, field) != gone.end();
      if (!known && text.find(field) == std::string::npos) gone.emplace_back(field);
      EXPECT_FALSE(known && text.find(field) != std::string::npos) << field << " came back";
    }
  }
  return gone;
}

// The bar itself is left out below 40 columns, which makes room for the time left once more.
TEST(StepBar, LosesTheLeastImportantFirst) {
  EXPECT_EQ(left_out(200, 40),
            (std::vector<std::string>{"norm", "lr", "8-bit", "TFLOP/s", "overflow", "val", "tok/s", "ETA"}));
  const std::vector<std::string> narrow = left_out(39, 1);
  EXPECT_EQ(std::vector<std::string>(narrow.end() - 3, narrow.end()),
            (std::vector<std::string>{"ETA", "loss", "50/200"}));
}

TEST(StepJson, HasEveryFigure) {
  ProgressLine line = line_at(50);
  line.overflows = 4;
  line.skipped = 5;
  nlohmann::json expected = nlohmann::json::parse(R"({"event": "step", "step": 50, "steps": 200, "loss": 2.34567,
    "learning_rate": 0.0003, "gradient_norm": 0.515, "tokens_per_second": 12345.0, "tflops": 1.234,
    "narrow_percent": 91.75, "overflows": 4, "skipped": 5, "seconds_left": null})");
  EXPECT_EQ(nlohmann::json::parse(format_json(line, std::nullopt)), expected);
  line.validation_loss = 3.5;
  expected["validation_loss"] = 3.5;
  expected["seconds_left"] = 12.5;
  EXPECT_EQ(nlohmann::json::parse(format_json(line, 12.5)), expected);
}

// Writes into memory, by a clock that the test sets.
class WatchedProgress {
 public:
  WatchedProgress(ProgressMode mode, std::int64_t log_every) {
    ProgressOptions options;
    options.out = stream_ = ::open_memstream(&data_, &size_);
    options.mode = mode;
    options.columns = 60;
    options.log_every = log_every;
    options.seconds = [this] { return now; };
    progress_.emplace(options);
  }
  ~WatchedProgress() {
    progress_.reset();
    std::fclose(stream_);
    std::free(data_);
  }
  WatchedProgress(const WatchedProgress&) = delete;
  WatchedProgress& operator=(const WatchedProgress&) = delete;

  Progress* operator->() { return &*progress_; }

  // What was written since the last call.
  std::string news() {
    std::fflush(stream_);
    std::string text(data_ + told_, size_ - told_);
    told_ = size_;
    return text;
  }

  double now = 0;

 private:
  char* data_ = nullptr;
  std::size_t size_ = 0;
  std::size_t told_ = 0;
  std::FILE* stream_ = nullptr;
  std::optional<Progress> progress_;
};

TEST(WhenLinesAppear, AtTheIntervalAtTheEndAndWhereValidated) {
  WatchedProgress progress(ProgressMode::lines, 10);
  for (std::int64_t step = 1; step <= 205; ++step) {
    ProgressLine line = line_at(step);
    if (step == 33) line.validation_loss = 2;
    progress->update(line);
    EXPECT_EQ(!progress.news().empty(), step % 10 == 0 || step == 33 || step >= 200) << step;
  }
  WatchedProgress every(ProgressMode::lines, 0);
  every->update(line_at(3));
  EXPECT_NE(every.news(), "") << "an interval of none is every step";
}

TEST(WhenTheBarIsDrawn, AtMostTenTimesASecondAndAtTheEnd) {
  WatchedProgress progress(ProgressMode::bar, 1);
  progress->update(line_at(1));
  EXPECT_NE(progress.news(), "");
  progress.now = 0.0625;
  progress->update(line_at(2));
  EXPECT_EQ(progress.news(), "");
  progress.now = 0.125;
  progress->update(line_at(3));
  EXPECT_THAT(progress.news(), HasSubstr("  3/200"));
  progress.now = 0.1875;
  progress->update(line_at(4));
  EXPECT_EQ(progress.news(), "") << "since it was drawn last";
  progress->message("hello");
  EXPECT_THAT(progress.news(), HasSubstr("hello\n  4/200")) << "and it is as new as can be";
  progress->finish();
  EXPECT_EQ(progress.news(), "\n") << "nothing is newer";
  progress->finish();
  EXPECT_EQ(progress.news(), "");
  progress->message("between");
  EXPECT_EQ(progress.news(), "between\n");
  progress->update(line_at(5));
  EXPECT_THAT(progress.news(), HasSubstr("\r  5/200")) << "a new bar";
  progress->update(line_at(6));
  EXPECT_EQ(progress.news(), "");
  progress->finish();
  EXPECT_THAT(progress.news(), HasSubstr("  6/200"));
  progress->update(line_at(199));
  progress.news();
  progress->update(line_at(200));
  EXPECT_THAT(progress.news(), HasSubstr("200/200")) << "the last step is always shown";
}

TEST(WarningText, HasALabelOfItsOwnColor) {
  char* data = nullptr;
  std::size_t size = 0;
  ProgressOptions options;
  options.out = ::open_memstream(&data, &size);
  options.colors = Colors::on;
  Progress(options).warning("careful");
  options.colors = Colors::off;
  Progress(options).warning("careful");
  std::fclose(options.out);
  EXPECT_EQ(std::string(data, size), "\x1b[33mwarning:\x1b[0m careful\nwarning: careful\n");
  std::free(data);
}

TEST(TimeLeft, IsThatOfTheStepsLeftAtThePaceSinceTheFirst) {
  WatchedProgress progress(ProgressMode::json, 1);
  const auto seconds_left = [&](double now, std::int64_t step) {
    progress.now = now;
    progress->update(line_at(step));
    return nlohmann::json::parse(progress.news())["seconds_left"];
  };
  EXPECT_TRUE(seconds_left(1000, 100).is_null());
  EXPECT_EQ(seconds_left(1010, 105), 190.0);  // two seconds per step
  EXPECT_EQ(seconds_left(1040, 140), 60.0);
  EXPECT_EQ(seconds_left(1050, 200), 0.0);
  EXPECT_TRUE(seconds_left(1060, 201).is_null()) << "beyond the end";
}

TEST(GlyphsOfTheLocale, TheFirstVariableThatIsSetDecides) {
  int controller = -1, end = -1;
  if (::openpty(&controller, &end, nullptr, nullptr, nullptr) != 0) GTEST_SKIP() << "no pseudo-terminals here";
  std::FILE* const terminal = ::fdopen(end, "w");
  const Variable term("TERM", "xterm");
  const auto glyphs = [&](std::optional<std::string> all, std::optional<std::string> type,
                          std::optional<std::string> lang) {
    const Variable first("LC_ALL", all), second("LC_CTYPE", type), third("LANG", lang);
    return progress_options(terminal, OutputStyle::human).glyphs;
  };
  EXPECT_EQ(glyphs("C", "en_US.UTF-8", "en_US.UTF-8"), Glyphs::ascii);
  EXPECT_EQ(glyphs("en_US.UTF-8", "C", "C"), Glyphs::unicode);
  EXPECT_EQ(glyphs("", "C", "en_US.UTF-8"), Glyphs::ascii);
  EXPECT_EQ(glyphs(std::nullopt, "en_US.utf8", "C"), Glyphs::unicode);
  EXPECT_EQ(glyphs(std::nullopt, "", "de_DE.utf8"), Glyphs::unicode);
  EXPECT_EQ(glyphs(std::nullopt, std::nullopt, "C"), Glyphs::ascii);
  EXPECT_EQ(glyphs(std::nullopt, std::nullopt, std::nullopt), Glyphs::ascii);
  std::fclose(terminal);
  ::close(controller);
}

TEST(AlignedTable, IsPaddedByCharacters) {
  EXPECT_EQ(aligned({{"name", "loss"}, {"a", "1.25"}, {"größer", "–"}}),
            "name    loss\n"
            "a       1.25\n"
            "größer     –\n");
  EXPECT_EQ(aligned({{"one"}}), "one\n");
  EXPECT_EQ(aligned({{"a", "b"}, {"c", ""}}), "a  b\nc   \n");
}

TEST(ShownNumber, IsADashWhereItIsNotFinite) {
  EXPECT_EQ(shown(0.000032), "3.2e-05");
  EXPECT_EQ(shown(1.25, "{:+.1f}"), "+1.2");
  EXPECT_EQ(shown(std::numeric_limits<double>::infinity()), "–");
  EXPECT_EQ(shown(std::numeric_limits<double>::quiet_NaN(), "{:.1f}"), "–");
}

std::string printed_by(const std::function<void()>& act) {
  ::testing::internal::CaptureStdout();
  act();
  return ::testing::internal::GetCapturedStdout();
}

TEST(StudyProgressLines, AppearEveryTenthOfTheWay) {
  const std::string text = printed_by([] {
    StudyBar bar("measuring", Output::human);
    bar.show(0, 40);
    for (Size done = 1; done <= 40; ++done) bar.show(done, 40);
    bar.show(3, 0);
  });
  std::istringstream lines(text);
  std::vector<std::string> begun;
  for (std::string line; std::getline(lines, line);) begun.push_back(line.substr(0, line.find(',')));
  EXPECT_THAT(begun, ::testing::ElementsAre("measuring 0/40", "measuring 4/40", "measuring 8/40", "measuring 12/40",
                                            "measuring 16/40", "measuring 20/40", "measuring 24/40", "measuring 28/40",
                                            "measuring 32/40", "measuring 36/40", "measuring 40/40"));
  EXPECT_THAT(text, HasSubstr("measuring 0/40, -- left\n"));
  EXPECT_THAT(text, HasSubstr("measuring 40/40, 0s left\n"));
  EXPECT_EQ(printed_by([] { StudyBar("measuring", Output::json).show(1, 2); }), "");
}

TEST(StudiedModel, IsOneOrTheOther) {
  StudyArguments arguments;
  arguments.step = 3;
  EXPECT_THROW(open_subject(arguments, single_process(), {}), Error);
  arguments = {};
  arguments.run = "runs/a";
  arguments.config.files = {"c.toml"};
  try {
    open_subject(arguments, single_process(), {});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "--run brings its own config, and c.toml is another");
  }
}

TEST(OptionRange, IncludesItsEnds) {
  const CLI::Validator whole = within(2, 10);
  EXPECT_EQ(whole("2"), "");
  EXPECT_EQ(whole("10"), "");
  EXPECT_EQ(whole("1"), "1 is not in the range from 2 to 10");
  EXPECT_EQ(whole("11"), "11 is not in the range from 2 to 10");
  EXPECT_EQ(whole("x"), "x is not in the range from 2 to 10");
  EXPECT_EQ(whole("2.5"), "2.5 is not in the range from 2 to 10");
  const CLI::Validator share = within(0.0, 1.0);
  EXPECT_EQ(share("0"), "");
  EXPECT_EQ(share("1"), "");
  EXPECT_NE(share("1.01"), "");
  EXPECT_NE(share("-0.01"), "");
  EXPECT_NE(share("nan"), "");
}

TEST(ExitStatus, IsTheVerbsOwnWhereItsOutputWasWritten) {
  EXPECT_EQ(with_output_written(0), 0);
  EXPECT_EQ(with_output_written(130), 130);
}

}  // namespace
}  // namespace quaver::test
