#include "cli/ranks.h"

#include <cstdlib>
#include <fmt/format.h>
#include <iostream>
#include <new>

#include "cli/watchdog.h"
#include "comm/agreement.h"
#include "engine/cuda_module.h"

namespace quaver {

namespace {

std::unique_ptr<Communicator> connect(const Launch& launch) {
  if (launch.launcher == Launcher::mpi) return make_mpi_communicator();
  return make_nccl_communicator({.launch = launch, .device = gpu_of_rank(launch.local_rank)});
}

void tell(const std::string& what, const std::string& remedy) {
  std::string text = fmt::format("quaver: {}\n", what);
  if (!remedy.empty()) text += fmt::format("  → {}\n", remedy);
  std::cerr << text << std::flush;
}

[[noreturn]] void end_all(Communicator& ranks, const std::string& what, const std::string& remedy) {
  tell(fmt::format("{}: {}", ranks.name_of(ranks.rank()), what), remedy);
  ranks.abort();
  std::_Exit(lost_rank_status);
}

}  // namespace

int on_ranks(const std::function<int(Communicator&, const Launch&)>& verb) {
  const Launch launch = launch_of_this_process();
  if (launch.size == 1) return verb(single_process(), launch);
  const std::unique_ptr<Communicator> ranks = connect(launch);
  const Watchdog watchdog(ranks->whereabouts(), [&](const Standstill& found) {
    end_all(*ranks, fmt::format("{}: all ranks end", found.text()),
            "look at that machine's driver and file systems; `quaver train --resume` goes on from the last checkpoint");
  });
  try {
    return verb(*ranks, launch);
  } catch (const AgreedError& error) {
    // Told before any rank ends: whoever started them ends the others when the first one does.
    if (ranks->is_first()) tell(error.what(), error.remedy());
    any_of_ranks(*ranks, true);
    return 1;
  } catch (const Error& error) {
    end_all(*ranks, error.what(), error.remedy());
  } catch (const std::bad_alloc&) {
    end_all(*ranks, "out of memory", "choose a smaller model or train.batch");
  } catch (const std::exception& error) {
    end_all(*ranks, error.what(), "");
  }
}

int in_one_process(const std::string& verb, const std::function<int()>& act) {
  return on_ranks([&](Communicator& ranks, const Launch&) {
    if (ranks.is_alone()) return act();
    throw AgreedError(
        fmt::format("`quaver {}` runs in one process, and {} were started", verb, ranks.size()),
        "start it without mpirun; `quaver train`, `compare`, `eval`, `calibrate` and `localize` run on several");
  });
}

}  // namespace quaver
