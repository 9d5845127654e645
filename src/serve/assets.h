// The dashboard's page, which is part of the program: no file is read to serve it.
#pragma once

#include <string>
#include <string_view>

namespace quaver {

struct Asset {
  std::string_view content_type;
  std::string_view bytes;
  std::string tag;  // changes with the bytes: what an ETag header says, with its quotes
};

// By its path, "/" for the page itself; null where there is none.
const Asset* find_asset(std::string_view path);

}  // namespace quaver
