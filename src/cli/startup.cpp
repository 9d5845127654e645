#include "cli/startup.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>
#include <string_view>
#include <sys/resource.h>
#include <unistd.h>

#include "engine/cpu/openblas.h"

namespace quaver {

namespace {

// A thread has OpenBLAS's buffer of 128 MiB, a stack of 8 MiB and an arena of malloc of 64 MiB; the program, its
// libraries and a small model are the rest.
constexpr std::uint64_t needed_kibibytes(long threads) {
  return (384 + 200 * static_cast<std::uint64_t>(threads)) * 1024;
}

long threads_of(char** environment) {
  constexpr std::string_view name = "OMP_NUM_THREADS=";
  const long cpus = std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN));
  for (char** entry = environment; *entry != nullptr; ++entry) {
    if (!std::string_view(*entry).starts_with(name)) continue;
    const long asked = std::strtol(*entry + name.size(), nullptr, 10);
    if (asked > 0) return std::min(asked, cpus);
  }
  return cpus;
}

// OpenBLAS takes its buffers when it is loaded, before main, and tries for ever where it gets none.
[[maybe_unused]] void refuse_small_address_space(int /*count*/, char** /*words*/, char** environment) {
  rlimit limit{};
  if (::getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const long threads = threads_of(environment);
  if (limit.rlim_cur / 1024 >= needed_kibibytes(threads)) return;
  std::array<char, 512> text{};  // no stream is ready yet
  const int length = std::snprintf(
      text.data(), text.size(),
      "quaver: the address space is limited to %llu KiB (ulimit -v), and OpenBLAS needs %llu KiB for %ld threads\n"
      "  → raise the limit, or set OMP_NUM_THREADS to a smaller number: one thread needs %llu KiB\n",
      static_cast<unsigned long long>(limit.rlim_cur / 1024),
      static_cast<unsigned long long>(needed_kibibytes(threads)), threads,
      static_cast<unsigned long long>(needed_kibibytes(1)));
  if (::write(STDERR_FILENO, text.data(), static_cast<std::size_t>(length)) < 0) ::_exit(2);
  ::_exit(1);
}

}  // namespace

// Called before the constructors of shared libraries.
#ifndef QUAVER_SANITIZED
__attribute__((section(".preinit_array"), used)) void (*const first_of_all)(int, char**,
                                                                            char**) = refuse_small_address_space;
#endif

void set_up_libraries(char** words) {
  bool changed = false;
  const auto set = [&](const char* name, const std::string& value) {
    changed |= !value.empty() && ::setenv(name, value.c_str(), 1) == 0;
  };
  if (std::getenv("OMP_WAIT_POLICY") == nullptr && std::getenv("GOMP_SPINCOUNT") == nullptr) {
    set("GOMP_SPINCOUNT", "3000");
  }
  if (std::getenv("OPENBLAS_CORETYPE") == nullptr) {
    set("OPENBLAS_CORETYPE", openblas_core_to_ask_for(openblas_core(), vector_unit()));
  }
  if (changed) ::execv("/proc/self/exe", words);  // returns only where that cannot be: then they do as they like
}

int with_output_written(int status) {
  const bool flushed = std::fflush(stdout) == 0;
  const int error_number = errno;
  std::cout.flush();
  if (flushed && std::ferror(stdout) == 0 && std::cout.good()) return status;
  std::cerr << "quaver: standard output cannot be written" << (flushed ? "" : ": ")
            << (flushed ? "" : std::strerror(error_number)) << "\n  → check where it goes: a full disk, or closed\n";
  return status != 0 ? status : 1;
}

}  // namespace quaver
