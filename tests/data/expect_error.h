// Errors are part of the interface: they must name the place and say what to do.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <string>

#include "quaver/error.h"

namespace quaver::test {

template <class Action>
void expect_error(const Action& action, const std::string& part) {
  try {
    action();
    ADD_FAILURE() << "no Error; expected one with \"" << part << "\"";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), ::testing::HasSubstr(part));
    EXPECT_NE(error.remedy(), "") << error.what();
  }
}

}  // namespace quaver::test
