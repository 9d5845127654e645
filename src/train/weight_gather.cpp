#include "train/weight_gather.h"

#include <algorithm>
#include <utility>

#include "comm/agreement.h"
#include "io/file_io.h"

namespace quaver {

namespace {

constexpr std::size_t at_once = 64;  // pieces in one exchange

}  // namespace

WeightGather::WeightGather(Engine& engine, Communicator& ranks, Parameters& parameters)
    : engine_(engine), ranks_(ranks), parameters_(parameters) {}

void WeightGather::cast(const Casting& casting) {
  parameters_.quantize_all(engine_, casting);
  cast_ = true;
}

void WeightGather::cast(std::span<Parameter* const> some, const Casting& casting) {
  for (Parameter* parameter : some) parameters_.quantize(*parameter, engine_, casting);
  cast_ = cast_ || !some.empty();
}

void WeightGather::note_update() { due_ = is_sharded(); }

void WeightGather::gather() {
  if (!take_due()) return;
  gather_sections(SharedPiece::before_sections,
                  parameters_.moves_by_section() ? SharedPiece::before_sections : parameters_.section());
}

void WeightGather::gather_casts() {
  if (!std::exchange(cast_, false) || !is_sharded()) return;
  due_ = true;
  gather();
  share_statistics();
}

// What is read anywhere comes with the first bucket.
std::vector<Device::Place> WeightGather::gather_aside() {
  std::vector<Device::Place> arrivals;
  for (const Bucket& bucket : parameters_.buckets()) {
    const Size first = bucket.first == 0 ? SharedPiece::before_sections : bucket.first;
    arrivals.push_back(engine_.device().aside([this, first, last = bucket.last] { gather_sections(first, last); }));
  }
  return arrivals;
}

void WeightGather::gather_section(Size section) { gather_sections(section, section); }

void WeightGather::gather_sections(Size first, Size last) {
  std::vector<SharedPiece> pieces = parameters_.shared_pieces();
  std::erase_if(pieces, [&](const SharedPiece& piece) { return piece.section < first || piece.section > last; });
  send(pieces);
}

// From the owner's memory to where passes read it, on every rank.
void WeightGather::send(std::span<const SharedPiece> pieces) {
  for (std::size_t first = 0; first < pieces.size(); first += at_once) {
    std::vector<Message> sent;
    std::vector<Message> received;
    for (const SharedPiece& piece : pieces.subspan(first, std::min(at_once, pieces.size() - first))) {
      const auto bytes = static_cast<std::size_t>(piece.bytes);
      const int owner = piece.parameter->owner;
      if (owner != ranks_.rank()) {
        received.push_back({owner, piece.read, bytes});
        continue;
      }
      for (int i = 1; i < ranks_.size(); ++i) sent.push_back({(owner + i) % ranks_.size(), piece.kept, bytes});
      if (piece.kept == piece.read) continue;
      const Size words = (piece.copied + 3) / 4;  // of memory that is aligned to more
      engine_.run(SumInOrder{{piece.kept, Format::f32, 1, words}, {piece.read, Format::f32, 1, words}});
    }
    ranks_.exchange(sent, received);
  }
  for (const SharedPiece& piece : pieces) {
    if (!piece.transposes || piece.parameter->owner == ranks_.rank()) continue;
    const QuantizedTensor& codes = piece.parameter->quantized;
    engine_.run(TransposeCodes{codes.rows_matrix(), codes.columns_matrix()});
  }
}

void WeightGather::share_statistics() {
  if (!is_sharded()) return;
  std::vector<std::vector<Site*>> owned(static_cast<std::size_t>(ranks_.size()));
  for (const Parameter& parameter : parameters_.all()) {
    if (parameter.site != nullptr) owned[static_cast<std::size_t>(parameter.owner)].push_back(parameter.site);
  }
  const std::vector<Site*>& own = owned[static_cast<std::size_t>(ranks_.rank())];
  engine_.wait_for_statistics(own);
  const auto most = std::ranges::max(owned, {}, [](const auto& sites) { return sites.size(); }).size();
  std::vector<CastStatistics> mine(most);
  std::ranges::transform(own, mine.begin(), [](const Site* site) { return site->seen; });
  const std::vector<CastStatistics> all = gathered(ranks_, mine);
  for (std::size_t rank = 0; rank < owned.size(); ++rank) {
    for (std::size_t i = 0; i < owned[rank].size(); ++i) owned[rank][i]->seen = all[rank * most + i];
  }
}

std::uint32_t WeightGather::checksum() {
  std::vector<std::byte> bytes;
  std::uint32_t sum = 0;
  const auto add = [&](const std::byte* data, Size count) {
    bytes.resize(static_cast<std::size_t>(count));
    engine_.device().download(data, bytes.data(), bytes.size());
    sum = crc32c(bytes, sum);
  };
  for (const Parameter& parameter : parameters_.all()) {
    if (!is_sharded() && !parameter.is_read_whole()) {  // master weights too
      add(static_cast<const std::byte*>(parameter.weight.data), parameter.weight.bytes());
    }
  }
  for (const SharedPiece& piece : parameters_.shared_pieces()) {
    const bool stays = piece.section == SharedPiece::before_sections || !parameters_.moves_by_section();
    if (stays) add(piece.read, piece.bytes);
  }
  return sum;
}

}  // namespace quaver
