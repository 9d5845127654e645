// Progress of a training run on standard output: a bar that redraws itself on a terminal, aligned plain lines in a pipe
// or file, one JSON object per line for programs.
#pragma once

#include <cstdint>
#include <cstdio>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace quaver {

// What is known after a step. The time left is worked out by Progress.
struct ProgressLine {
  std::int64_t step = 0;  // finished, of `steps`
  std::int64_t steps = 0;
  double loss = 0;
  std::optional<double> validation_loss;      // on steps that were validated
  std::optional<double> validation_accuracy;  // … of a classifier
  double learning_rate = 0;
  double gradient_norm = 0;
  double tokens_per_second = 0;
  std::string unit = "tok";          // what those are, in short
  double tflops = 0;                 // 10^12 floating-point operations per second
  double low_precision_percent = 0;  // share of those in formats of 8 bits or fewer
  std::int64_t overflows = 0;        // so far: tensors that overflowed
  std::int64_t skipped = 0;          // so far: steps skipped for non-finite gradients
};

enum class ProgressMode : std::uint8_t { bar, lines, json };
enum class Colors : std::uint8_t { off, on };
enum class Glyphs : std::uint8_t { ascii, unicode };

// Since some fixed moment.
double steady_seconds();

struct ProgressOptions {
  std::FILE* out = stdout;
  ProgressMode mode = ProgressMode::lines;
  Colors colors = Colors::off;
  Glyphs glyphs = Glyphs::ascii;
  int columns = 0;                  // of the terminal; 0: ask it, 80 when it does not say
  std::int64_t log_every = 1;       // lines and JSON: steps between them; the last and validated steps always appear
  std::function<double()> seconds;  // a clock; empty: the steady clock
};

enum class OutputStyle : std::uint8_t { human, json };  // json: --json was given

// The mode that suits the stream: a bar on a terminal, lines elsewhere and where TERM is "dumb". Colors unless
// NO_COLOR is set to anything but nothing; line-drawing characters in a UTF-8 locale.
ProgressOptions progress_options(std::FILE* out, OutputStyle style);

// For one thread. Everything is written whole, in one call, so that a bar never flickers and lines never mix. Where
// nobody reads any more (a closed pipe, a terminal that hung up) what the stream is given from then on goes nowhere.
class Progress {
 public:
  explicit Progress(ProgressOptions options);
  ~Progress();  // finishes
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // After each step, or each few: the bar redraws at most ten times per second, lines appear every log_every steps.
  void update(const ProgressLine& line);

  // A line above the bar. Control characters other than line breaks are not passed on: the text may come from a model.
  void message(std::string_view text);
  void warning(std::string_view text);
  void critical(std::string_view text);

  // Leaves the bar as last drawn and goes to the next line. Later updates start a new bar.
  void finish();

 private:
  void labelled(std::string_view label, std::string_view color, std::string_view text);
  void redraw();
  void print_above_bar(const std::string& text);
  bool is_due(const ProgressLine& line) const;
  std::optional<double> seconds_left() const;
  void write(std::string_view text) const;

  ProgressOptions options_;
  ProgressLine last_;
  bool bar_is_drawn_ = false;
  bool bar_is_stale_ = false;  // last_ is newer than what is drawn
  double drawn_at_ = 0;
  std::optional<std::int64_t> first_step_;  // that was reported; a resumed run does not start at 0
  double started_at_ = 0;                   // when it was
  double updated_at_ = 0;
};

// "45s", "2m05s", "3h07m", "2d04h"; "--" when unknown (not finite, or negative).
std::string format_duration(double seconds);

// Three digits: "999", "12.3k", "1.20M", "3.40G", "1.20T".
std::string format_count(double count);

// "512 B", "1.50 KiB", "3.21 MiB", "12.0 GiB".
std::string format_bytes(std::uint64_t bytes);

// As much of the line as fits in `columns`, the least important fields left out first; no line break. For Progress.
std::string format_bar(const ProgressLine& line, std::optional<double> seconds_left, int columns, Colors colors,
                       Glyphs glyphs);

// Fields of fixed width, so that lines align.
std::string format_line(const ProgressLine& line, std::optional<double> seconds_left);

// One object, without a line break. Numbers that are not finite become null.
std::string format_json(const ProgressLine& line, std::optional<double> seconds_left);

}  // namespace quaver
