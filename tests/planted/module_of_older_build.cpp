// A module from before modules said what they were built with.
extern "C" __attribute__((visibility("default"))) int answer() { return 42; }
