// The dashboard's page, embedded in the program: serving it reads no file.
#pragma once

#include <string>
#include <string_view>

namespace quaver {

struct Asset {
  std::string_view content_type;
  std::string_view bytes;
  std::string tag;  // the ETag, a checksum, with its quotes
};

// By its path, "/" for the page itself; null where there is none.
const Asset* find_asset(std::string_view path);

}  // namespace quaver
