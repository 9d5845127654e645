// A module that was built with other headers than the program.
extern "C" __attribute__((visibility("default"))) const char* quaver_module_interface() { return "0123456789abcdef"; }

extern "C" __attribute__((visibility("default"))) int answer() { return 42; }
