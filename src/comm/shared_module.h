// Parts of the program that are loaded when they are asked for, so that it runs on machines without the libraries they
// need: the CUDA engine, MPI.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace quaver {

// Identifies the headers that a program and its modules share. A module of another build would misread what it is
// given, so each exports its own and is refused where it is not the program's.
const char* module_interface();
extern "C" {
using ModuleInterface = const char* (*)();
}
inline constexpr const char* module_interface_symbol = "quaver_module_interface";

enum class SymbolScope : std::uint8_t { local, global };

struct SharedModule {
  const char* name;      // of its file
  const char* variable;  // of the environment, which may say where it is
  const char* what;      // in words
  const char* remedy_absent;
  const char* remedy_broken;
  SymbolScope scope = SymbolScope::local;

  // $variable, the program's own folder, and lib/ beside it; in a shared library that library's folder and the one
  // above.
  std::vector<std::filesystem::path> places() const;
  std::filesystem::path find() const;  // empty: none of them has it

  // A function that it exports with C linkage. Throws Error naming what is missing, or that it is of another build, and
  // the remedy. The module stays loaded: what its functions return lives in it.
  template <class Function>
  Function function(const char* symbol) const {
    return reinterpret_cast<Function>(address_of(symbol));
  }

 private:
  void* address_of(const char* symbol) const;
};

}  // namespace quaver
