// Shared by the tests of config/: loading from text, and the whole message of a refusal.
#pragma once

#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "config/load.h"
#include "quaver/error.h"

namespace quaver::test {

inline Config load_text(const std::string& toml, std::vector<std::string> flags = {}) {
  return load_config({.files = {}, .texts = {{"run.toml", toml}}, .flags = std::move(flags)});
}

inline Config load_flags(std::vector<std::string> flags) {
  return load_config({.files = {}, .texts = {}, .flags = std::move(flags)});
}

// What the Error says, remedy included; fails the test when there is none.
template <class Action>
std::string refusal(Action action) {
  try {
    action();
  } catch (const Error& error) {
    EXPECT_FALSE(error.remedy().empty()) << error.what();
    return std::string(error.what()) + "\n" + error.remedy();
  }
  ADD_FAILURE() << "expected a quaver::Error";
  return "";
}

inline std::string refused_text(const std::string& toml) {
  return refusal([&] { load_text(toml); });
}

inline std::string refused_flag(const std::string& flag) {
  return refusal([&] { load_flags({flag}); });
}

}  // namespace quaver::test
