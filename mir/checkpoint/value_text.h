#ifndef MIR_CHECKPOINT_VALUE_TEXT_H_
#define MIR_CHECKPOINT_VALUE_TEXT_H_

#include <string>

#include "mir/checkpoint/value.h"

namespace mir::checkpoint {

// `value` as Python would print it, for tests: "{'a': [1, True, None]}". A
// tensor is "float32[2, 1](0 1.5)", an OrderedDict begins with its name and
// ends with its attributes, an object is "a.B(arguments)<state>".
std::string ValueText(const Value& value);

}  // namespace mir::checkpoint

#endif  // MIR_CHECKPOINT_VALUE_TEXT_H_
