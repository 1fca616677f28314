#ifndef MIR_TRAINING_JSON_VALUE_H_
#define MIR_TRAINING_JSON_VALUE_H_

#include <nlohmann/json.hpp>

#include "mir/checkpoint/value.h"

namespace mir::training {

// JSON as the Python value that a checkpoint holds: objects become dicts in
// their order, arrays lists. Every JSON document has one.
checkpoint::Value ValueFromJson(const nlohmann::json& json);

// The reverse: tuples become arrays, int keys strings. What JSON has no form
// for (tensors, bytes, objects) becomes a string that describes it, as does all
// beyond 100,000 values: what a small file shares may be endless in JSON.
nlohmann::json JsonFromValue(const checkpoint::Value& value);

}  // namespace mir::training

#endif  // MIR_TRAINING_JSON_VALUE_H_
