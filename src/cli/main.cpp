// The program: its errors as messages with remedies, its exit status as other programs expect it.
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <new>

#include "cli/command_line.h"
#include "cli/startup.h"
#include "quaver/error.h"

int main(int count, char** words) {
  quaver::set_up_libraries(words);
  std::signal(SIGXFSZ, SIG_IGN);  // a file size limit is then an error like a full disk, with a message
  try {
    return quaver::with_output_written(quaver::run_command_line({words + 1, words + count}));
  } catch (const quaver::Error& error) {
    std::cerr << "quaver: " << error.what() << '\n';
    if (!error.remedy().empty()) std::cerr << "  → " << error.remedy() << '\n';
    return 1;
  } catch (const std::bad_alloc&) {
    std::cerr << "quaver: out of memory\n  → choose a smaller model or train.batch\n";
    return 1;
  } catch (const std::filesystem::filesystem_error& error) {
    std::cerr << "quaver: " << error.path1().string() << ": " << error.code().message() << "\n  → check the path\n";
    return 1;
  } catch (const std::exception& error) {
    if (std::ferror(stdout) != 0) return quaver::with_output_written(1);
    std::cerr << "quaver: " << error.what() << '\n';
    return 1;
  }
}
