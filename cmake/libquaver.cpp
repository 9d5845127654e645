// The source of a library that is made of the others: CMake wants one.
