// Unicode's normalization form C, as of Unicode 9: the version that Hugging Face's tokenizers normalize by. Characters
// that are newer stay as they are, and so do bytes that are not UTF-8.
#pragma once

#include <string>
#include <string_view>

namespace quaver {

// The text in NFC: the text itself where it is so already, or else `storage`, which gets it.
std::string_view normalize_nfc(std::string_view text, std::string& storage);

}  // namespace quaver
