#include "cli/ranks.h"

#include <cstdlib>
#include <fmt/format.h>
#include <iostream>
#include <new>

#include "comm/agreement.h"

#include "engine/cuda_module.h"

namespace quaver {

namespace {

std::unique_ptr<Communicator> connect(const Launch& launch) {
  if (launch.launcher == Launcher::mpi) return make_mpi_communicator();
  return make_nccl_communicator({.launch = launch, .device = gpu_of_rank(launch.local_rank)});
}

[[noreturn]] void end_all(Communicator& ranks, const std::string& what, const std::string& remedy) {
  std::string text = fmt::format("quaver: {}: {}\n", ranks.name_of(ranks.rank()), what);
  if (!remedy.empty()) text += fmt::format("  → {}\n", remedy);
  std::cerr << text << std::flush;
  ranks.abort();
  std::_Exit(lost_rank_status);
}

}  // namespace

int on_ranks(const std::function<int(Communicator&, const Launch&)>& verb) {
  const Launch launch = launch_of_this_process();
  if (launch.size == 1) return verb(single_process(), launch);
  const std::unique_ptr<Communicator> ranks = connect(launch);
  try {
    return verb(*ranks, launch);
  } catch (const AgreedError&) {
    if (ranks->is_first()) throw;
    return 1;
  } catch (const Error& error) {
    end_all(*ranks, error.what(), error.remedy());
  } catch (const std::bad_alloc&) {
    end_all(*ranks, "out of memory", "choose a smaller model or train.batch");
  } catch (const std::exception& error) {
    end_all(*ranks, error.what(), "");
  }
}

void refuse_ranks(const std::string& verb) {
  const Launch launch = launch_of_this_process();
  if (launch.size == 1) return;
  if (launch.rank > 0) std::exit(1);  // the first one tells it
  throw Error(fmt::format("`quaver {}` runs in one process, and {} were started", verb, launch.size),
              "start it without mpirun; `quaver train` runs on several");
}

}  // namespace quaver
