// How a process knows that it is one of several, from its environment.
#include "comm/launch.h"

#include <gmock/gmock.h>

#include "support/variable.h"

#include "comm/agreement.h"
#include "quaver/error.h"

namespace quaver::test {
namespace {

using ::testing::HasSubstr;

TEST(Launch, IsAProcessByItselfWithoutVariables) {
  const Launch launch = launch_of_this_process();
  EXPECT_EQ(launch.launcher, Launcher::none);
  EXPECT_EQ(launch.size, 1);
}

TEST(Launch, KnowsMpirun) {
  const Variable size("OMPI_COMM_WORLD_SIZE", "4");
  const Variable rank("OMPI_COMM_WORLD_RANK", "3");
  const Variable local("OMPI_COMM_WORLD_LOCAL_RANK", "1");
  const Launch launch = launch_of_this_process();
  EXPECT_EQ(launch.launcher, Launcher::mpi);
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.size, 4);
  EXPECT_EQ(launch.local_rank, 1);
}

TEST(Launch, KnowsTheVariablesOfTorchrun) {
  const Variable size("WORLD_SIZE", "16");
  const Variable rank("RANK", "9");
  const Variable local("LOCAL_RANK", "1");
  const Variable address("MASTER_ADDR", "node-1");
  const Variable port("MASTER_PORT", "29500");
  const Launch launch = launch_of_this_process();
  EXPECT_EQ(launch.launcher, Launcher::variables);
  EXPECT_EQ(launch.rank, 9);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.master_address, "node-1");
  EXPECT_EQ(launch.master_port, 29500);
}

std::string refusal() {
  try {
    launch_of_this_process();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Launch, RefusesVariablesThatContradictEachOther) {
  {
    const Variable size("WORLD_SIZE", "2");
    EXPECT_THAT(refusal(), HasSubstr("RANK and WORLD_SIZE"));
    const Variable rank("RANK", "2");
    EXPECT_THAT(refusal(), HasSubstr("RANK must be below WORLD_SIZE"));
  }
  const Variable size("WORLD_SIZE", "2");
  const Variable rank("RANK", "1");
  EXPECT_THAT(refusal(), HasSubstr("without MASTER_ADDR"));
  const Variable bad("MASTER_PORT", "29x");
  EXPECT_THAT(refusal(), HasSubstr("MASTER_PORT is \"29x\""));
}

// A process by itself keeps its own errors: nobody else has to know them.
TEST(Agreement, OfOneProcessIsItsOwn) {
  Communicator& alone = single_process();
  EXPECT_EQ(gathered(alone, 7), std::vector<int>{7});
  EXPECT_EQ(gathered(alone, std::string("text")), std::vector<std::string>{"text"});
  EXPECT_TRUE(any_of_ranks(alone, true));
  EXPECT_FALSE(any_of_ranks(alone, false));
  EXPECT_THROW(on_all_ranks(alone, [] { throw std::logic_error("mine"); }), std::logic_error);
  EXPECT_NO_THROW(require_same(alone, {"version", "1", ""}));
}

}  // namespace
}  // namespace quaver::test
