// How this process was started: by itself, or as one of several that train together.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "comm/communicator.h"

namespace quaver {

// mpi: by mpirun, or srun with its PMI. variables: RANK, WORLD_SIZE and MASTER_ADDR, as torchrun and --gpus set them.
enum class Launcher : std::uint8_t { none, mpi, variables };

struct Launch {
  Launcher launcher = Launcher::none;
  int rank = 0;
  int size = 1;
  int local_rank = 0;               // among the ranks of this machine: the number of its GPU
  std::string master_address = {};  // where the first rank listens; of `variables`
  int master_port = 0;
};

// Throws Error where the variables contradict each other.
Launch launch_of_this_process();

// The communicator of a process that mpirun started. Throws Error naming what is missing and the remedy.
std::unique_ptr<Communicator> make_mpi_communicator();

// What the module quaver_mpi.so exports, with C linkage so that its name is known.
extern "C" {
using MakeMpiCommunicator = Communicator* (*)();
}
inline constexpr const char* make_mpi_communicator_symbol = "quaver_make_mpi_communicator";

}  // namespace quaver
