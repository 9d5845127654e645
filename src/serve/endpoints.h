// What the dashboard answers from the store, one function an address: the body as JSON, or as bytes for matrices. They
// throw NoSuchRecord for what the store does not have and BadParameter for queries that make no sense.
#pragma once

#include <string>
#include <string_view>

#include "serve/query.h"
#include "serve/stores.h"
#include "store/reader.h"
#include "store/run_edits.h"

namespace quaver {

// The runs of all stores, newest first, and what of the stores could not be read. Error where that is all of them.
std::string runs_answer(const Stores& stores);
std::string run_answer(const Stores& stores, const ServedStore& place, const StoreReader& store,
                       const std::string& run);

// names=loss,gradient_norm&after=STEP&points=2000
std::string metrics_answer(const StoreReader& store, const std::string& run, const Query& query);

// site=NAME&points=2000
std::string history_answer(const StoreReader& store, const std::string& run, const Query& query);

// statistic=NAME&role=dy&from=STEP&to=STEP&columns=1200&rows=800. The length of a header as four bytes, little end
// first; the header, JSON, padded with spaces to a multiple of four bytes from the start; float32 [rows × columns].
std::string numerics_answer(const StoreReader& store, const std::string& run, const Query& query);

// site=NAME[&step=STEP]
std::string histogram_answer(const StoreReader& store, const std::string& run, const Query& query);

std::string changes_answer(const StoreReader& store, const std::string& run);
std::string alerts_answer(const ServedStore& place, const StoreReader& store, const std::string& run);
std::string all_alerts_answer(const Stores& stores);
std::string events_answer(const StoreReader& store, const std::string& run);
std::string samples_answer(const StoreReader& store, const std::string& run);
std::string document_answer(const StoreReader& store, const std::string& run, const std::string& kind);

// The edit in {"name":"…","tags":["a","b"],"note":"…","hidden":true,"deleted":false}, of which any may be absent: text
// without control characters (a note may have line ends) within the store's bounds. BadParameter for anything else.
RunEdit edit_in(std::string_view body);

}  // namespace quaver
