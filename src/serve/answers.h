// What the dashboard answers from the store, one function an address: the body as JSON, or as bytes for matrices. They
// throw NoSuchRecord for what the store does not have and BadParameter for queries that make no sense.
#pragma once

#include <string>
#include <string_view>

#include "serve/query.h"
#include "store/reader.h"

namespace quaver {

std::string runs_answer(const StoreReader& store);
std::string run_answer(const StoreReader& store, const std::string& run);

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
std::string alerts_answer(const StoreReader& store, const std::string& run);
std::string all_alerts_answer(const StoreReader& store);
std::string events_answer(const StoreReader& store, const std::string& run);
std::string samples_answer(const StoreReader& store, const std::string& run);
std::string document_answer(const StoreReader& store, const std::string& run, const std::string& kind);

// The tags in {"tags":["a","b"]}: at most 32 of 1 to 64 characters. Throws BadParameter for anything else.
std::vector<std::string> tags_in(std::string_view body);

}  // namespace quaver
