#include "cli/progress.h"

#include <algorithm>
#include <cmath>
#include <gmock/gmock.h>
#include <limits>
#include <nlohmann/json.hpp>
#include <pty.h>
#include <sstream>
#include <unistd.h>
#include <vector>

#include "support/variable.h"

namespace quaver {
namespace {

using test::Variable;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

// What a Progress writes, under a clock that the test sets.
class Recorder {
 public:
  explicit Recorder(ProgressMode mode, int columns = 80) {
    options_.out = ::open_memstream(&data_, &size_);
    options_.mode = mode;
    options_.columns = columns;
    options_.seconds = [this] { return now; };
  }
  ~Recorder() {
    std::fclose(options_.out);
    std::free(data_);
  }
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  ProgressOptions& options() { return options_; }
  std::string text() const {
    std::fflush(options_.out);
    return {data_, size_};
  }

  double now = 100;

 private:
  char* data_ = nullptr;
  std::size_t size_ = 0;
  ProgressOptions options_;
};

ProgressLine step(std::int64_t number, std::int64_t steps = 300) {
  ProgressLine line;
  line.step = number;
  line.steps = steps;
  line.loss = 2.34567;
  line.learning_rate = 3e-4;
  line.gradient_norm = 0.51;
  line.tokens_per_second = 12345;
  line.tflops = 1.234;
  line.low_precision_percent = 91.7;
  return line;
}

std::size_t characters(const std::string& utf8) {
  return static_cast<std::size_t>(std::ranges::count_if(utf8, [](char c) { return (c & 0xC0) != 0x80; }));
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// What a terminal shows after the text: rows of characters, obeying \r, \n and "erase to end of line". Colors leave no
// trace; any other escape sequence fails the test.
std::vector<std::string> screen(const std::string& text) {
  std::vector<std::string> rows(1);
  std::size_t column = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r') {
      column = 0;
    } else if (text[i] == '\n') {
      rows.emplace_back();
      column = 0;
    } else if (text[i] == '\x1b') {
      const std::size_t end = text.find_first_of("Km", i);
      if (end == std::string::npos || text[i + 1] != '[') {
        ADD_FAILURE() << "unknown escape sequence";
        return rows;
      }
      if (text[end] == 'K') rows.back().resize(std::min(column, rows.back().size()));
      i = end;
    } else {
      rows.back().resize(std::max(rows.back().size(), column + 1), ' ');
      rows.back()[column++] = text[i];
    }
  }
  return rows;
}

TEST(FormatBar, FitsAnyWidthAndKeepsTheImportantFields) {
  ProgressLine line = step(120);
  line.validation_loss = 2.4;
  line.overflows = 3;
  line.skipped = 1;
  for (const Glyphs glyphs : {Glyphs::ascii, Glyphs::unicode}) {
    for (int columns = 0; columns <= 250; ++columns) {
      const std::string bar = format_bar(line, 62.0, columns, Colors::off, glyphs);
      EXPECT_LE(characters(bar), static_cast<std::size_t>(columns));
      EXPECT_THAT(bar, Not(HasSubstr("\n")));
    }
    EXPECT_THAT(format_bar(line, 62.0, 79, Colors::off, glyphs),
                AllOf(StartsWith("120/300  "), HasSubstr("loss 2.3457"), HasSubstr("tok/s"), HasSubstr("ETA 1m02s")));
  }
  EXPECT_EQ(format_bar(line, 62.0, 7, Colors::off, Glyphs::ascii), "120/300");
  EXPECT_THAT(
      format_bar(line, 62.0, 200, Colors::off, Glyphs::ascii),
      AllOf(HasSubstr("val 2.4000"), HasSubstr("1.23 TFLOP/s"), HasSubstr("8-bit 92%"), HasSubstr("overflow 3"),
            HasSubstr("skipped 1"), HasSubstr("lr 3.00e-04"), HasSubstr("norm 0.51"), HasSubstr("12.3k tok/s")));
}

TEST(FormatBar, GrowsWithTheSteps) {
  std::ptrdiff_t before = -1;
  for (std::int64_t number = 0; number <= 300; number += 50) {
    const std::string bar = format_bar(step(number), std::nullopt, 120, Colors::off, Glyphs::ascii);
    const auto full = std::ranges::count(bar, '=');
    EXPECT_GT(full, before);
    before = full;
  }
  EXPECT_THAT(format_bar(step(300), 0.0, 120, Colors::off, Glyphs::ascii), Not(HasSubstr("=-")));
}

TEST(FormatBar, ColorsAddOnlyEscapesAndAreOffWhenTold) {
  ProgressLine line = step(120);
  line.overflows = 3;
  const std::string plain = format_bar(line, 1.0, 100, Colors::off, Glyphs::ascii);
  const std::string colored = format_bar(line, 1.0, 100, Colors::on, Glyphs::ascii);
  EXPECT_THAT(plain, Not(HasSubstr("\x1b")));
  EXPECT_THAT(colored, HasSubstr("\x1b["));
  EXPECT_THAT(screen(colored), ElementsAre(plain));
}

TEST(FormatBar, SurvivesNonsense) {
  ProgressLine line;
  line.step = std::numeric_limits<std::int64_t>::max();
  line.steps = -5;
  line.loss = NAN;
  line.tokens_per_second = INFINITY;
  line.tflops = -1e300;
  EXPECT_LE(format_bar(line, NAN, 79, Colors::off, Glyphs::ascii).size(), 79U);
  EXPECT_THAT(format_line(line, NAN), HasSubstr("nan"));
}

TEST(Bar, StaysOnOneRow) {
  Recorder recorder(ProgressMode::bar, 60);
  {
    Progress progress(recorder.options());
    for (std::int64_t number = 1; number <= 300; ++number) {
      recorder.now += 1;
      progress.update(step(number));
      const auto rows = screen(recorder.text());
      ASSERT_EQ(rows.size(), 1U);
      ASSERT_LT(rows[0].size(), 60U);
    }
  }
  const auto rows = screen(recorder.text());
  ASSERT_EQ(rows.size(), 2U);  // finished by going to the next line
  EXPECT_THAT(rows[0], StartsWith("300/300"));
  EXPECT_EQ(rows[1], "");
}

TEST(Bar, LeavesNothingOfALongerOneBehind) {
  Recorder recorder(ProgressMode::bar, 120);
  Progress progress(recorder.options());
  ProgressLine line = step(1);
  line.loss = 12345.6789;
  line.overflows = 1234567;
  progress.update(line);
  recorder.now += 1;
  progress.update(step(2));
  EXPECT_THAT(screen(recorder.text()), ElementsAre(format_bar(step(2), 298.0, 119, Colors::off, Glyphs::ascii)));
}

TEST(Bar, RedrawsAtMostTenTimesASecondAndShowsTheLastStep) {
  Recorder recorder(ProgressMode::bar);
  Progress progress(recorder.options());
  for (std::int64_t number = 1; number < 1000; ++number) {
    recorder.now += 0.001;
    progress.update(step(number, 2000));
  }
  EXPECT_LE(std::ranges::count(recorder.text(), '\r'), 11);
  progress.finish();
  EXPECT_THAT(screen(recorder.text())[0], StartsWith(" 999/2000"));
}

TEST(Bar, MessagesAndWarningsStandAboveIt) {
  Recorder recorder(ProgressMode::bar);
  Progress progress(recorder.options());
  progress.message("before");
  progress.update(step(7));
  progress.message("one\ntwo");
  progress.warning("three");
  const auto rows = screen(recorder.text());
  ASSERT_EQ(rows.size(), 5U);
  EXPECT_EQ(rows[0], "before");
  EXPECT_EQ(rows[1], "one");
  EXPECT_EQ(rows[2], "two");
  EXPECT_EQ(rows[3], "warning: three");
  EXPECT_THAT(rows[4], StartsWith("  7/300"));
}

TEST(Bar, MessagesCannotCommandTheTerminal) {
  Recorder recorder(ProgressMode::bar);
  Progress progress(recorder.options());
  progress.message(
      "\x1b]0;title\x07 \xc2\x9b"
      "2J \x7f\r ok é");
  EXPECT_EQ(recorder.text(), "?]0;title? ?2J ?? ok é\n");
}

TEST(Bar, RemembersTheLastValidationLoss) {
  Recorder recorder(ProgressMode::bar, 120);
  Progress progress(recorder.options());
  ProgressLine validated = step(1);
  validated.validation_loss = 3.5;
  progress.update(validated);
  recorder.now += 1;
  progress.update(step(2));
  EXPECT_THAT(screen(recorder.text())[0], HasSubstr("val 3.5000"));
}

TEST(Progress, TimeLeftFollowsThePaceOfThisProcess) {
  Recorder recorder(ProgressMode::json);
  Progress progress(recorder.options());
  recorder.now = 1000;  // loading took long and does not count
  progress.update(step(101, 201));
  recorder.now += 50;
  progress.update(step(151, 201));
  const auto lines = lines_of(recorder.text());
  EXPECT_TRUE(nlohmann::json::parse(lines[0])["seconds_left"].is_null());
  EXPECT_DOUBLE_EQ(nlohmann::json::parse(lines[1])["seconds_left"].get<double>(), 50);
}

TEST(Lines, AppearEveryIntervalAlignedAndWithoutEscapes) {
  Recorder recorder(ProgressMode::lines);
  recorder.options().log_every = 10;
  Progress progress(recorder.options());
  for (std::int64_t number = 1; number <= 105; ++number) {
    recorder.now += 3;
    ProgressLine line = step(number, 105);
    line.loss = 100.0 / static_cast<double>(number);
    line.overflows = number;
    if (number == 15) line.validation_loss = 3.25;
    progress.update(line);
  }
  progress.finish();
  const auto lines = lines_of(recorder.text());
  ASSERT_EQ(lines.size(), 12U);  // 10, 15 (validated), 20 … 100, 105 (the last)
  for (const std::string& line : lines) {
    EXPECT_EQ(line.size(), lines[0].size()) << line;
    EXPECT_EQ(line.find("tok/s"), lines[0].find("tok/s"));
    EXPECT_THAT(line, AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\r"))));
  }
  EXPECT_THAT(lines[0], StartsWith("step  10/105  loss  10.0000  val        -  lr 3.00e-04  norm    0.510"));
  EXPECT_THAT(lines[1], AllOf(StartsWith("step  15/105"), HasSubstr("val   3.2500")));
  EXPECT_THAT(lines.back(), StartsWith("step 105/105"));
}

TEST(Lines, WarningsArePlain) {
  Recorder recorder(ProgressMode::lines);
  Progress progress(recorder.options());
  progress.warning("careful");
  EXPECT_EQ(recorder.text(), "warning: careful\n");
}

TEST(Json, EveryLineIsAnObjectWithTheStepsFigures) {
  Recorder recorder(ProgressMode::json);
  Progress progress(recorder.options());
  ProgressLine line = step(3);
  line.validation_loss = 2.5;
  line.skipped = 4;
  progress.update(line);
  line.validation_loss.reset();
  line.loss = NAN;
  progress.update(line);
  progress.message("a \"quoted\"\nmessage \xff");
  progress.warning("careful");
  progress.finish();
  std::vector<nlohmann::json> objects;
  for (const std::string& text : lines_of(recorder.text())) objects.push_back(nlohmann::json::parse(text));
  ASSERT_EQ(objects.size(), 4U);
  EXPECT_EQ(objects[0]["event"], "step");
  EXPECT_EQ(objects[0]["step"], 3);
  EXPECT_EQ(objects[0]["steps"], 300);
  EXPECT_EQ(objects[0]["loss"], 2.34567);
  EXPECT_EQ(objects[0]["validation_loss"], 2.5);
  EXPECT_EQ(objects[0]["skipped"], 4);
  EXPECT_EQ(objects[0]["narrow_percent"], 91.7);
  EXPECT_TRUE(objects[1]["loss"].is_null());
  EXPECT_FALSE(objects[1].contains("validation_loss"));
  EXPECT_EQ(objects[2]["event"], "message");
  EXPECT_THAT(objects[2]["text"].get<std::string>(), StartsWith("a \"quoted\"\nmessage "));
  EXPECT_EQ(objects[3]["event"], "warning");
}

class Terminal {
 public:
  explicit Terminal(unsigned short columns) {
    winsize size{};
    size.ws_col = columns;
    size.ws_row = 24;
    if (::openpty(&controller_, &end_, nullptr, nullptr, &size) == 0) stream_ = ::fdopen(end_, "w");
  }
  ~Terminal() {
    if (stream_ != nullptr) std::fclose(stream_);
    if (controller_ >= 0) ::close(controller_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  std::FILE* stream() const { return stream_; }
  std::string written() const {
    std::string text(4096, '\0');
    const ssize_t size = ::read(controller_, text.data(), text.size());
    text.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return text;
  }

 private:
  int controller_ = -1, end_ = -1;
  std::FILE* stream_ = nullptr;
};

TEST(Options, SuitTheStreamAndTheEnvironment) {
  const Terminal terminal(100);
  if (terminal.stream() == nullptr) GTEST_SKIP() << "no pseudo-terminals here";
  const Variable term("TERM", "xterm"), color("NO_COLOR", std::nullopt), locale("LC_ALL", "en_US.UTF-8");
  EXPECT_EQ(progress_options(terminal.stream(), OutputStyle::human).mode, ProgressMode::bar);
  EXPECT_EQ(progress_options(terminal.stream(), OutputStyle::human).colors, Colors::on);
  EXPECT_EQ(progress_options(terminal.stream(), OutputStyle::human).glyphs, Glyphs::unicode);
  EXPECT_EQ(progress_options(terminal.stream(), OutputStyle::json).mode, ProgressMode::json);
  {
    const Variable no_color("NO_COLOR", "1");
    EXPECT_EQ(progress_options(terminal.stream(), OutputStyle::human).colors, Colors::off);
    const Variable empty("NO_COLOR", "");
    EXPECT_EQ(progress_options(terminal.stream(), OutputStyle::human).colors, Colors::on);
    const Variable c_locale("LC_ALL", "C");
    EXPECT_EQ(progress_options(terminal.stream(), OutputStyle::human).glyphs, Glyphs::ascii);
    const Variable dumb("TERM", "dumb");
    EXPECT_EQ(progress_options(terminal.stream(), OutputStyle::human).mode, ProgressMode::lines);
  }
  std::FILE* file = std::tmpfile();
  ASSERT_NE(file, nullptr);
  EXPECT_EQ(progress_options(file, OutputStyle::human).mode, ProgressMode::lines);
  EXPECT_EQ(progress_options(file, OutputStyle::human).colors, Colors::off);
  std::fclose(file);
}

TEST(Options, BarTakesTheWidthOfTheTerminal) {
  const Terminal narrow(50);
  if (narrow.stream() == nullptr) GTEST_SKIP() << "no pseudo-terminals here";
  ProgressOptions options;
  options.out = narrow.stream();
  options.mode = ProgressMode::bar;
  Progress progress(options);
  progress.update(step(5));
  const auto rows = screen(narrow.written());
  EXPECT_EQ(rows[0], format_bar(step(5), std::nullopt, 49, Colors::off, Glyphs::ascii));
}

}  // namespace
}  // namespace quaver
