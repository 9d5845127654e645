#include "study/cluster.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "quaver/error.h"

namespace quaver {
namespace {

using ::testing::HasSubstr;

TEST(ClusterTest, HasAsFewMachinesOfEightAsHoldTheGpus) {
  struct Case {
    Size gpus, machines;
  };
  for (const auto& [gpus, machines] :
       {Case{1, 1}, Case{7, 1}, Case{8, 1}, Case{9, 3}, Case{12, 2}, Case{16, 2}, Case{64, 8}, Case{1024, 128}}) {
    const Cluster cluster = make_cluster({.gpus = gpus, .machines = {}, .links = {}});
    EXPECT_EQ(cluster.machines, machines) << gpus;
    EXPECT_EQ(cluster.per_machine() * cluster.machines, gpus);
    EXPECT_EQ(cluster.inside.name, "nvlink");
    EXPECT_EQ(cluster.between.name, "ib");
  }
}

TEST(ClusterTest, TakesALinkOfEachReach) {
  const Cluster both = make_cluster({.gpus = 16, .machines = 2, .links = {"ethernet", "pcie"}});
  EXPECT_EQ(both.inside.name, "pcie");
  EXPECT_EQ(both.between.name, "ethernet");
  const Cluster one = make_cluster({.gpus = 4, .machines = {}, .links = {"pcie"}});
  EXPECT_EQ(one.inside.name, "pcie");
}

// Nobody's link is faster than its maker says.
TEST(ClusterTest, LinksAreBelowTheirNominalBandwidths) {
  const auto of = [](std::string_view name) {
    for (const Link& link : links()) {
      if (link.name == name) return link.bytes_per_second;
    }
    return 0.0;
  };
  EXPECT_LT(of("nvlink"), 450e9);
  EXPECT_LT(of("pcie"), 64e9);
  EXPECT_LT(of("ib"), 50e9);
  EXPECT_LT(of("ethernet"), 12.5e9);
  EXPECT_EQ(links().size(), 4U);
}

void expect_error(const ClusterOptions& options, const char* problem, const char* remedy) {
  try {
    make_cluster(options);
    ADD_FAILURE() << "no error: " << problem;
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(problem));
    EXPECT_THAT(error.remedy(), HasSubstr(remedy));
  }
}

TEST(ClusterTest, RefusesWhatIsNoCluster) {
  expect_error({.gpus = 0, .machines = {}, .links = {}}, "0 GPUs", "--gpus of 1 or more");
  expect_error({.gpus = 8, .machines = 3, .links = {}}, "8 GPUs cannot be divided equally among 3 machines",
               "--gpus 6 and 9");
  expect_error({.gpus = 2, .machines = 4, .links = {}}, "2 GPUs cannot be in 4 machines", "from 1 to 2");
  expect_error({.gpus = 8, .machines = 0, .links = {}}, "in 0 machines", "from 1 to 8");
  expect_error({.gpus = 8, .machines = {}, .links = {"token-ring"}}, "token-ring", "nvlink or pcie");
  expect_error({.gpus = 8, .machines = {}, .links = {"ib"}}, "ib connects machines, and there is one", "--nodes");
  expect_error({.gpus = 8, .machines = 8, .links = {"nvlink"}}, "one GPU per machine", "fewer --nodes than 8");
  expect_error({.gpus = 16, .machines = 2, .links = {"ib", "ethernet"}}, "both connect machines", "one of them");
  expect_error({.gpus = 16, .machines = 2, .links = {"nvlink", "pcie"}}, "the GPUs of a machine", "one of them");
}

}  // namespace
}  // namespace quaver
