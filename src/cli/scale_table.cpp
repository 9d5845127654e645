#include "cli/scale_table.h"

#include <cmath>
#include <fmt/format.h>

#include "cli/table.h"
#include "formats/quant_spec.h"

namespace quaver {

namespace {

std::string scale_of(const std::optional<StoredSite>& site) { return site ? fmt::format("{:.6g}", site->scale) : "–"; }

std::string formats_of(const std::optional<StoredSite>& site) {
  if (!site) return "–";
  const std::string rows = describe(site->spec.rows);
  const std::string columns = describe(site->spec.columns);
  return rows == columns ? rows : rows + " / " + columns;
}

// Of scales that are powers of two apart it is a whole number; a scale of 0 is none.
std::string binades_between(const SiteDifference& difference) {
  if (!difference.first || !difference.second) return "–";
  const float first = difference.first->scale;
  const float second = difference.second->scale;
  return first > 0 && second > 0 ? fmt::format("{:+.2f}", std::log2(second / first)) : "–";
}

}  // namespace

std::string scale_table(const std::vector<SiteDifference>& differences) {
  std::vector<std::vector<std::string>> rows{{"site", "scale A", "scale B", "Δ binades", "format A", "format B"}};
  for (const SiteDifference& difference : differences) {
    const std::string first = formats_of(difference.first);
    const std::string second = formats_of(difference.second);
    rows.push_back({difference.site, scale_of(difference.first), scale_of(difference.second),
                    binades_between(difference), first, first == second ? "same" : second});
  }
  return aligned(rows);
}

}  // namespace quaver
