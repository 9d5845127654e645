// What surrounds every verb: how the process begins, and whether what it printed has arrived. Linked in, it also ends
// the process with an error where the address space (ulimit -v) is too small for OpenBLAS.
#pragma once

namespace quaver {

// Starts the program once more where libraries that read the environment before main should do as follows, and it does
// not say. Threads that wait for each other spin before they sleep: libgomp lets them spin for long, which is ruinous
// where other programs want the CPU too. OpenBLAS has faster kernels than those it chooses on some CPUs.
void set_up_libraries(char** words);

// The exit status: `status`, or 1 with a message where standard output could not be written.
int with_output_written(int status);

}  // namespace quaver
