// GPUs, the machines that hold them and the links between them: bandwidths and latencies as their makers and nccl-tests
// state them. Nothing here asks the hardware.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/quant_spec.h"

namespace quaver {

enum class Reach : std::uint8_t { within_machine, between_machines };
enum class Lane : std::uint8_t { of_each_gpu, of_the_machine };  // which its GPUs share

struct Link {
  std::string_view name;  // as --link takes it
  Reach reach = Reach::within_machine;
  Lane lane = Lane::of_each_gpu;
  double bytes_per_second = 0;  // in one direction, as NCCL reaches it
  double hop_seconds = 0;       // latency of a message
  std::string_view source;      // in words: what it is, and who says so
};
const std::vector<Link>& links();

struct Cluster {
  Size gpus = 1;
  Size machines = 1;
  Link inside;   // between GPUs of a machine
  Link between;  // between machines

  Size per_machine() const { return gpus / machines; }
};

struct ClusterOptions {
  Size gpus = 1;
  std::optional<Size> machines;    // empty: as few of at most 8 GPUs as can have the same number each
  std::vector<std::string> links;  // names, at most one of each reach; empty: nvlink and ib
};

// Throws Error, naming the remedy, where the options do not describe a cluster.
Cluster make_cluster(const ClusterOptions& options);

}  // namespace quaver
