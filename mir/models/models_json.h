#ifndef MIR_MODELS_MODELS_JSON_H_
#define MIR_MODELS_MODELS_JSON_H_

namespace mir::models {

// The text of models.json.
extern const char kModelsJson[];

}  // namespace mir::models

#endif  // MIR_MODELS_MODELS_JSON_H_
