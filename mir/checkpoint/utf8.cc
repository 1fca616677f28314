#include "mir/checkpoint/utf8.h"

#include <cstddef>
#include <cstdint>

namespace mir::checkpoint {
namespace {

// Takes one character off the front of `text`; negative where it is malformed.
int32_t TakeCharacter(absl::string_view* text) {
  const auto byte = [&](size_t i) {
    return static_cast<unsigned char>((*text)[i]);
  };
  const unsigned char first = byte(0);
  size_t length = 1;
  int32_t character = first;
  int32_t smallest = 0;
  if (first >= 0xf0 && first < 0xf8) {
    length = 4, character = first & 0x07, smallest = 0x10000;
  } else if (first >= 0xe0 && first < 0xf0) {
    length = 3, character = first & 0x0f, smallest = 0x800;
  } else if (first >= 0xc0 && first < 0xe0) {
    length = 2, character = first & 0x1f, smallest = 0x80;
  } else if (first >= 0x80) {
    return -1;
  }
  if (text->size() < length) return -1;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return -1;
    character = character << 6 | (byte(i) & 0x3f);
  }
  if (character < smallest || character > 0x10ffff) return -1;
  text->remove_prefix(length);
  return character;
}

}  // namespace

bool IsUtf8(absl::string_view text) {
  while (!text.empty()) {
    if (TakeCharacter(&text) < 0) return false;
  }
  return true;
}

std::optional<std::string> Latin1FromUtf8(absl::string_view utf8) {
  std::string bytes;
  bytes.reserve(utf8.size());
  while (!utf8.empty()) {
    const int32_t character = TakeCharacter(&utf8);
    if (character < 0 || character > 0xff) return std::nullopt;
    bytes.push_back(static_cast<char>(character));
  }
  return bytes;
}

std::string Utf8FromLatin1(absl::string_view bytes) {
  std::string utf8;
  utf8.reserve(bytes.size() + bytes.size() / 2);
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80) {
      utf8.push_back(c);
    } else {
      utf8.push_back(static_cast<char>(0xc0 | byte >> 6));
      utf8.push_back(static_cast<char>(0x80 | (byte & 0x3f)));
    }
  }
  return utf8;
}

}  // namespace mir::checkpoint
