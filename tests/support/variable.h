// An environment variable for as long as a test, or a part of it, lasts; then it is what it was before.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace quaver::test {

class Variable {
 public:
  // Without a value it is not set at all.
  Variable(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* old = std::getenv(name)) old_ = old;
    set(value);
  }
  ~Variable() { set(old_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const std::optional<std::string>& value) const {
    value ? ::setenv(name_, value->c_str(), 1) : ::unsetenv(name_);
  }

  const char* name_;
  std::optional<std::string> old_;
};

}  // namespace quaver::test
