// Response bodies from the store, one function per endpoint: JSON, or bytes for matrices. They throw NoSuchRecord for
// what the store does not have and BadParameter for invalid queries.
#pragma once

#include <string>
#include <string_view>

#include "serve/query.h"
#include "serve/store_pool.h"
#include "store/reader.h"
#include "store/run_edits.h"

namespace quaver {

// The runs of all stores, newest first, and which stores could not be read. Error where none could.
std::string runs_body(const StorePool& pool);
std::string run_body(const StorePool& pool, const ServedStore& place, const StoreReader& store, const std::string& run);

// names=loss,gradient_norm&after=STEP&points=2000
std::string metrics_body(const StoreReader& store, const std::string& run, const Query& query);

// site=NAME&points=2000
std::string history_body(const StoreReader& store, const std::string& run, const Query& query);

// statistic=NAME&role=dy&from=STEP&to=STEP&columns=1200&rows=800. The length of a header as four bytes, little-endian;
// the header, JSON, padded with spaces to a multiple of four bytes from the start; float32 [rows × columns].
std::string numerics_body(const StoreReader& store, const std::string& run, const Query& query);

// site=NAME[&step=STEP]
std::string histogram_body(const StoreReader& store, const std::string& run, const Query& query);

std::string changes_body(const StoreReader& store, const std::string& run);
std::string alerts_body(const ServedStore& place, const StoreReader& store, const std::string& run);
std::string all_alerts_body(const StorePool& pool);
std::string events_body(const StoreReader& store, const std::string& run);
std::string samples_body(const StoreReader& store, const std::string& run);
std::string document_body(const StoreReader& store, const std::string& run, const std::string& kind);

// Parses {"name":"…","tags":["a","b"],"note":"…","hidden":true,"deleted":false}, of which any may be absent: text
// without control characters (a note may have line ends) within the store's limits. BadParameter for anything else.
RunEdit edit_in(std::string_view body);

}  // namespace quaver
