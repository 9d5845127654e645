/* The version of quaver (Semantic Versioning): also what the shared library's SONAME is made from. C and C++. */
#ifndef QUAVER_VERSION_H
#define QUAVER_VERSION_H

#define QUAVER_VERSION_MAJOR 0
#define QUAVER_VERSION_MINOR 1
#define QUAVER_VERSION_PATCH 0

#endif
