// What makes the library usable in a process that is forked, as Python's multiprocessing does it. OpenMP keeps the
// threads of a team for its next use. A forked process has none of them and would wait for them forever, so the team of
// the thread that forks is let go before: each of the two processes makes its own where it needs one.
#include <omp.h>
#include <pthread.h>

namespace quaver {
namespace {

void release_threads() { omp_pause_resource_all(omp_pause_hard); }

[[maybe_unused]] const int registered = pthread_atfork(release_threads, nullptr, nullptr);

}  // namespace
}  // namespace quaver
