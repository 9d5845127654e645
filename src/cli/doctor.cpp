#include "study/doctor.h"

#include <fmt/format.h>

#include "cli/verbs.h"

namespace quaver {

int doctor_verb(const DoctorArguments& arguments) {
  const DoctorReport report = examine();
  fmt::print("{}", arguments.output == Output::json ? doctor_json(report) + "\n" : doctor_text(report));
  return report.healthy() ? 0 : 1;
}

}  // namespace quaver
