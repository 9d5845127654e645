// What every function of the C interface does: no exception crosses it, and arguments are checked before they are used.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "quaver/error.h"
#include "quaver/quaver.h"

namespace quaver::c {

// An argument of the call is wrong.
class Invalid : public Error {
 public:
  using Error::Error;
};

// Runs the work; what it throws becomes a status, and the text of this thread's last error.
quaver_status guarded(const std::function<void()>& work) noexcept;

template <class Pointer>
Pointer* require(Pointer* pointer, const char* name) {
  if (pointer == nullptr) throw Invalid(std::string(name) + " is NULL", "pass an address");
  return pointer;
}

// An enumerator, of `count` from 0.
template <class Enum>
Enum enumerator(std::int32_t value, std::int32_t count, const char* name) {
  if (value < 0 || value >= count) {
    throw Invalid(std::string(name) + " is " + std::to_string(value),
                  "use one of the enumerators, which end at " + std::to_string(count - 1));
  }
  return static_cast<Enum>(value);
}

// Valid UTF-8, or Invalid.
std::string text(const char* value, const char* name);
std::vector<std::string> texts(const char* const* values, std::size_t count, const char* name);

inline double or_nan(const std::optional<double>& value) {
  return value.value_or(std::numeric_limits<double>::quiet_NaN());
}

}  // namespace quaver::c
