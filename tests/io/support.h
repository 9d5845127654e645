// What tests of files share.
#pragma once

#include <cstddef>
#include <gtest/gtest.h>
#include <span>
#include <string_view>

#include "support/temporary_folder.h"

namespace quaver::test {

inline std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

class InAFolder : public testing::Test {
 private:
  const TemporaryFolder temporary_;

 protected:
  const std::filesystem::path& folder_ = temporary_.path();
};

}  // namespace quaver::test
