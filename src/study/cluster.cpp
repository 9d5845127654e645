#include "study/cluster.h"

#include <algorithm>
#include <fmt/format.h>

#include "quaver/error.h"

namespace quaver {

namespace {

constexpr Size usual_machine = 8;

std::string names_of(Reach reach) {
  std::string names;
  for (const Link& link : links()) {
    if (link.reach == reach) names += fmt::format("{}{}", names.empty() ? "" : " or ", link.name);
  }
  return names;
}

const Link& find_link(std::string_view name) {
  const auto found = std::ranges::find(links(), name, &Link::name);
  if (found != links().end()) return *found;
  throw Error(fmt::format("there is no link \"{}\"", name),
              fmt::format("between GPUs of a machine: {}; between machines: {}; both: --link nvlink,ib",
                          names_of(Reach::within_machine), names_of(Reach::between_machines)));
}

// Where the number is left open each machine still has as many as the others.
Size fewest_machines(Size gpus) {
  Size machines = (gpus + usual_machine - 1) / usual_machine;
  while (gpus % machines != 0) ++machines;
  return machines;
}

void check_machines(Size gpus, Size machines) {
  if (machines < 1 || machines > gpus) {
    throw Error(fmt::format("{} GPUs cannot be in {} machines", gpus, machines),
                fmt::format("choose --nodes from 1 to {}", gpus));
  }
  if (gpus % machines == 0) return;
  const Size each = gpus / machines;
  throw Error(fmt::format("{} GPUs cannot be divided equally among {} machines", gpus, machines),
              fmt::format("with --nodes {}, --gpus {} and {} can", machines, machines * each, machines * (each + 1)));
}

void check_reach(const Cluster& cluster, const Link& link) {
  const bool inside = link.reach == Reach::within_machine;
  if (inside ? cluster.per_machine() > 1 || cluster.gpus == 1 : cluster.machines > 1) return;
  if (inside) {
    throw Error(fmt::format("with one GPU per machine nothing goes over {}", link.name),
                fmt::format("leave it out, or choose fewer --nodes than {}", cluster.machines));
  }
  throw Error(fmt::format("{} connects machines, and there is one", link.name),
              "say how many with --nodes, or choose " + names_of(Reach::within_machine));
}

}  // namespace

const std::vector<Link>& links() {
  static const std::vector<Link> all = {
      {"nvlink", Reach::within_machine, Lane::of_each_gpu, 360e9, 3.4e-6,
       "NVLink 4 of H100 and H200: 450 GB/s by NVIDIA, 360 GB/s in all-gathers (nccl-tests issues 212, 326)"},
      {"pcie", Reach::within_machine, Lane::of_each_gpu, 50e9, 5.7e-6,
       "PCIe 5 x16: 64 GB/s by its standard, 50 to 56 GB/s from GPU to GPU under a switch; half of it and less across "
       "CPUs"},
      {"ib", Reach::between_machines, Lane::of_each_gpu, 46e9, 14e-6,
       "InfiniBand NDR, a 400 Gb/s adapter per GPU: 50 GB/s nominal, 46 to 48 GB/s reached (nccl-tests issue 290)"},
      {"ethernet", Reach::between_machines, Lane::of_the_machine, 11.5e9, 50e-6,
       "100 Gb/s Ethernet, one adapter per machine: 12.5 GB/s nominal, 92 % of it and the latency assumed"}};
  return all;
}

Cluster make_cluster(const ClusterOptions& options) {
  if (options.gpus < 1) throw Error(fmt::format("{} GPUs cannot train", options.gpus), "choose --gpus of 1 or more");
  Cluster cluster{.gpus = options.gpus,
                  .machines = options.machines.value_or(fewest_machines(options.gpus)),
                  .inside = find_link("nvlink"),
                  .between = find_link("ib")};
  check_machines(cluster.gpus, cluster.machines);
  std::optional<std::string_view> chosen[2];
  for (const std::string& name : options.links) {
    const Link& link = find_link(name);
    check_reach(cluster, link);
    auto& earlier = chosen[static_cast<std::size_t>(link.reach)];
    if (earlier && *earlier != link.name) {
      throw Error(fmt::format("{} and {} both connect {}", *earlier, link.name,
                              link.reach == Reach::within_machine ? "the GPUs of a machine" : "machines"),
                  "choose one of them");
    }
    earlier = link.name;
    (link.reach == Reach::within_machine ? cluster.inside : cluster.between) = link;
  }
  return cluster;
}

}  // namespace quaver
