#include "comm/shared_module.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

#include "quaver/error.h"

namespace quaver {

namespace fs = std::filesystem;

namespace {

const char in_this_file = 0;

// The folder of the shared library that this code is part of; empty within a program.
fs::path library_folder(const fs::path& program) {
  Dl_info found{};
  if (dladdr(&in_this_file, &found) == 0 || found.dli_fname == nullptr) return {};
  std::error_code ignored;
  const fs::path file = fs::canonical(found.dli_fname, ignored);
  return file == program ? fs::path{} : file.parent_path();
}

}  // namespace

const char* module_interface() { return QUAVER_MODULE_INTERFACE; }

std::vector<fs::path> SharedModule::places() const {
  if (const char* chosen = std::getenv(variable)) return {fs::path(chosen)};
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored);
  const fs::path library = library_folder(program);
  if (!library.empty()) return {library / name, library.parent_path() / name};
  const fs::path folder = program.parent_path();
  return {folder / name, folder / "lib" / name, folder.parent_path() / "lib" / name, folder.parent_path() / name};
}

fs::path SharedModule::find() const {
  std::error_code ignored;
  for (const fs::path& place : places()) {
    if (fs::exists(place, ignored)) return place;
  }
  return {};
}

void* SharedModule::address_of(const char* symbol) const {
  const fs::path path = find();
  if (path.empty()) throw Error(std::string(what) + ", " + name + ", is not beside the program", remedy_absent);
  void* handle = dlopen(path.c_str(), RTLD_NOW | (scope == SymbolScope::global ? RTLD_GLOBAL : RTLD_LOCAL));
  if (handle == nullptr) throw Error(std::string(what) + " cannot be loaded: " + dlerror(), remedy_broken);
  const auto interface = reinterpret_cast<ModuleInterface>(dlsym(handle, module_interface_symbol));
  void* address = dlsym(handle, symbol);
  if (interface == nullptr || std::strcmp(interface(), module_interface()) != 0 || address == nullptr) {
    throw Error(path.string() + " is " + what + " of another build than this program",
                "build the program and the module together, and copy both where one is copied");
  }
  return address;
}

}  // namespace quaver
