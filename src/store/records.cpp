#include "store/records.h"

namespace quaver {

std::string_view name_of(RunStatus status) {
  switch (status) {
    case RunStatus::running:
      return "running";
    case RunStatus::finished:
      return "finished";
    case RunStatus::interrupted:
      return "interrupted";
    case RunStatus::failed:
      return "failed";
    case RunStatus::lost:
      break;
  }
  return "lost";
}

std::string_view name_of(WorseWay way) {
  switch (way) {
    case WorseWay::higher:
      return "higher";
    case WorseWay::lower:
      return "lower";
    case WorseWay::larger_magnitude:
      break;
  }
  return "larger_magnitude";
}

}  // namespace quaver
