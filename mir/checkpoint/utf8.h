#ifndef MIR_CHECKPOINT_UTF8_H_
#define MIR_CHECKPOINT_UTF8_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace mir::checkpoint {

// Whether `text` is UTF-8 as pickles hold it: well formed, of the shortest
// form, at most U+10FFFF; lone surrogates pass, as they do in Python's pickle.
bool IsUtf8(absl::string_view text);

// The bytes whose Latin-1 text is `utf8`, as Python's `text.encode("latin1")`;
// empty if it is not UTF-8 or has a character above U+00FF.
std::optional<std::string> Latin1FromUtf8(absl::string_view utf8);

// The reverse: Python's `bytes.decode("latin1")` in UTF-8.
std::string Utf8FromLatin1(absl::string_view bytes);

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_UTF8_H_
