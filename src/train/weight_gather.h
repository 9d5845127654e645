// Gets the weights that passes read to every rank: what a parameter's owner has cast or updated goes to the others, as
// codes and scales where GEMMs read it, else in the master's format. A rank by itself has nothing to do.
#pragma once

#include <span>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "nn/parameter.h"

namespace quaver {

class WeightGather {
 public:
  // The parameters are dealt out and have their memory.
  WeightGather(Engine& engine, Communicator& ranks, Parameters& parameters);

  // Casts the weights (all, or some) that this rank keeps, as Parameters::quantize does. They have to be gathered
  // before a pass can run.
  void cast(const Casting& casting);
  void cast(std::span<Parameter* const> some, const Casting& casting);

  // The owners have updated the weights, which have to be gathered.
  void note_update();
  bool take_due() { return std::exchange(due_, false); }  // whoever asks gathers them

  // Collective; they enqueue and return. gather: all that stays where it is, if it is due. gather_casts: the same where
  // there were casts, with what they saw.
  void gather();
  void gather_casts();
  // The same while a pass runs, which waits for what it needs: bucket by bucket, put aside.
  std::vector<Device::Place> gather_aside();
  // The weights of a section, where they are moved for each.
  void gather_section(Size section);
  // What the owners' casts saw is what every rank's saw: waits for the device.
  void share_statistics();

  // Of all that passes read and that stays where it is: the same on every rank, unless one of them computes wrongly.
  std::uint32_t checksum();

 private:
  void gather_sections(Size first, Size last);
  void send(std::span<const SharedPiece> pieces);
  bool is_sharded() const { return parameters_.place().has(ShardMode::optimizer); }

  Engine& engine_;
  Communicator& ranks_;
  Parameters& parameters_;
  bool cast_ = false;  // since they were gathered
  bool due_ = false;
};

}  // namespace quaver
