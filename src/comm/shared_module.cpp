#include "comm/shared_module.h"

#include <cstdlib>
#include <dlfcn.h>

#include "quaver/error.h"

namespace quaver {

namespace fs = std::filesystem;

std::vector<fs::path> SharedModule::places() const {
  if (const char* chosen = std::getenv(variable)) return {fs::path(chosen)};
  std::error_code ignored;
  const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
  return {program / name, program / "lib" / name, program.parent_path() / "lib" / name, program.parent_path() / name};
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
  void* address = dlsym(handle, symbol);
  if (address == nullptr) {
    throw Error(path.string() + " is not " + what + " of this version", "build the program and the module together");
  }
  return address;
}

}  // namespace quaver
