// Runs the real program as a user would: a process of its own, in a folder of its own, its output and exit status kept.
#pragma once

#include <csignal>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "support/temporary_folder.h"

namespace quaver::test {

// Where the program is: $QUAVER_BINARY, else the one this test was built with, else the one beside the tests' folder.
// Throws std::runtime_error when there is none: a test of the command line that cannot run has failed.
std::filesystem::path program();

struct Outcome {
  int status = -1;  // exit status; 128 + the signal's number where one ended it
  std::string out;
  std::string error;
};

using Words = std::vector<std::string>;

// A process that may still be running. Ended by the destructor if it is.
class Process {
 public:
  Process(const TemporaryFolder& folder, const Words& words);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  // Waits until standard output contains the text. False when the process ends, or a minute passes, without it.
  bool wait_for(std::string_view text);
  void send(int signal) const;
  Outcome wait();

 private:
  bool has_ended();

  std::filesystem::path out_;
  std::filesystem::path error_;
  pid_t pid_ = -1;
  int raw_status_ = 0;
  bool ended_ = false;
};

// Runs `quaver words…` in the folder to its end.
Outcome quaver(const TemporaryFolder& folder, const Words& words);

// The words of a training run on generated text that takes milliseconds per step, plus more words.
Words tiny_training(const Words& more = {});

// The same on a data set of text.
Words tiny_training_on(std::string_view data, const Words& more = {});

// A few kilobytes of text in several files, in <folder>/text.
void write_text(const TemporaryFolder& folder);

// The text as a data set in <folder>/data, a third of its documents to validate with.
void prepare_text(const TemporaryFolder& folder);

Words operator+(Words a, const Words& b);

}  // namespace quaver::test
