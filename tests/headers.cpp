// Carries the precompiled headers of all tests: tests/CMakeLists.txt names them.
