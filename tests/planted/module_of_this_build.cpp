// A module that was built with the program.
#include "comm/shared_module.h"

extern "C" __attribute__((visibility("default"))) const char* quaver_module_interface() {
  return quaver::module_interface();
}

extern "C" __attribute__((visibility("default"))) int answer() { return 42; }
