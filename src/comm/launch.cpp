#include "comm/launch.h"

#include <charconv>
#include <cstdlib>
#include <fmt/format.h>
#include <optional>

#include "comm/shared_module.h"
#include "quaver/error.h"

namespace quaver {

namespace {

std::optional<int> number_in(const char* variable) {
  const char* text = std::getenv(variable);
  if (text == nullptr || *text == 0) return std::nullopt;
  const std::string_view view(text);
  int value = 0;
  const auto [end, error] = std::from_chars(view.data(), view.data() + view.size(), value);
  if (error != std::errc() || end != view.data() + view.size() || value < 0) {
    throw Error(fmt::format("{} is \"{}\", which is no number", variable, text), "unset it, or set it to a number");
  }
  return value;
}

struct Variables {
  const char* size;
  const char* rank;
  const char* local_rank;
};

// OpenMPI's, those of PMI (MPICH, Intel MPI), and Slurm's own beside PMIx.
constexpr Variables of_mpi[] = {{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK"},
                                {"PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID"}};

std::optional<Launch> mpi_launch() {
  for (const Variables& names : of_mpi) {
    const auto size = number_in(names.size);
    if (!size) continue;
    return Launch{.launcher = Launcher::mpi,
                  .rank = number_in(names.rank).value_or(0),
                  .size = *size,
                  .local_rank = number_in(names.local_rank).value_or(0)};
  }
  if (std::getenv("PMIX_RANK") == nullptr || !number_in("SLURM_NTASKS")) return std::nullopt;
  return Launch{.launcher = Launcher::mpi,
                .rank = number_in("SLURM_PROCID").value_or(0),
                .size = *number_in("SLURM_NTASKS"),
                .local_rank = number_in("SLURM_LOCALID").value_or(0)};
}

std::optional<Launch> variables_launch() {
  const auto size = number_in("WORLD_SIZE");
  const auto rank = number_in("RANK");
  if (!size && !rank) return std::nullopt;
  if (!size || !rank || *rank >= *size) {
    throw Error("RANK and WORLD_SIZE do not describe a rank: RANK must be below WORLD_SIZE",
                "set both, as torchrun does, or neither");
  }
  const char* address = std::getenv("MASTER_ADDR");
  const auto port = number_in("MASTER_PORT");
  if (*size > 1 && (address == nullptr || !port)) {
    throw Error("WORLD_SIZE is set without MASTER_ADDR and MASTER_PORT",
                "set them to the first rank's machine and a free port of it");
  }
  return Launch{.launcher = Launcher::variables,
                .rank = *rank,
                .size = *size,
                .local_rank = number_in("LOCAL_RANK").value_or(*rank),
                .master_address = address != nullptr ? address : "",
                .master_port = port.value_or(0)};
}

}  // namespace

Launch launch_of_this_process() {
  if (const auto launch = mpi_launch()) return *launch;
  if (const auto launch = variables_launch()) return *launch;
  return {};
}

std::unique_ptr<Communicator> make_mpi_communicator() {
  const SharedModule module{
      .name = "quaver_mpi.so",
      .variable = "QUAVER_MPI_MODULE",
      .what = "the module for MPI",
      .remedy_absent = "build where MPI is installed (Debian: libopenmpi-dev), or set QUAVER_MPI_MODULE",
      .remedy_broken = "install the MPI library that it was built with (Debian: openmpi-bin)",
      .scope = SymbolScope::global};  // OpenMPI's own plugins look for its symbols there
  const auto make = module.function<MakeMpiCommunicator>(make_mpi_communicator_symbol);
  return std::unique_ptr<Communicator>(make());
}

}  // namespace quaver
