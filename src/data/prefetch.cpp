#include <fmt/format.h>

#include "data/loader.h"
#include "quaver/error.h"

namespace quaver {

PrefetchLoader::PrefetchLoader(const TokenSource& source, const BatchOrder& order, std::int64_t batch,
                               std::int64_t context, int depth)
    : order_(order) {
  if (batch <= 0 || context <= 0 || depth <= 0) {
    throw Error(fmt::format("a loader of {} sequences of {} tokens, {} batches ahead", batch, context, depth),
                "all three must be at least 1");
  }
  const auto ids = static_cast<std::size_t>(batch * context);
  const Slot blank{std::vector<std::int32_t>(ids), std::vector<std::int32_t>(ids),
                   std::vector<std::int32_t>(source.packs_documents() ? ids : 0)};
  const auto fill = [&source, order, batch, context](std::uint64_t number, Slot& slot) {
    source.fill(order.index(number), batch, context, slot.inputs.data(), slot.targets.data());
    source.fill_document_starts(order.index(number), batch, context, slot.document_starts.data());
  };
  slots_ = std::make_unique<Prefetcher<Slot>>(fill, static_cast<std::size_t>(depth), blank);
}

PrefetchLoader::Batch PrefetchLoader::next() {
  const auto [number, slot] = slots_->next();
  return {order_.index(number), slot.inputs, slot.targets, slot.document_starts};
}

}  // namespace quaver
