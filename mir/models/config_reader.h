#ifndef MIR_MODELS_CONFIG_READER_H_
#define MIR_MODELS_CONFIG_READER_H_

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace mir::models {

// Reads the settings of a model's configuration, a JSON object, into variables
// that hold the defaults: a key that is absent leaves its variable. After the
// first fault nothing is read, and `status` names the key, what was wanted and
// what came.
//
//   ConfigReader reader("TransMorph", config, {"embed_dim", "rpe"});
//   reader.Read("embed_dim", &embed_dim, 1, 4096);
//   reader.Read("rpe", &rpe);
//   if (!reader.status().ok()) return reader.status();
class ConfigReader {
 public:
  // `config` must outlive the reader. That it is no object, or has a key that
  // is not among `keys`, is a fault (the nearest is named).
  ConfigReader(std::string model, const nlohmann::json& config,
               const std::vector<std::string>& keys);

  void Read(const char* key, bool* value);
  void Read(const char* key, int64_t* value, int64_t least, int64_t most);
  void Read(const char* key, double* value, double least, double most);
  // A list of any length; `least` and `most` hold for each entry.
  void Read(const char* key, std::vector<int64_t>* values, int64_t least,
            int64_t most);
  // One of `choices`.
  void Read(const char* key, std::string* value,
            const std::vector<std::string>& choices);

  // Makes "MODEL wants KEY to be WANTED, not ..." the fault unless `right`.
  void Check(const char* key, bool right, const std::string& wanted);

  // INVALID_ARGUMENT: the first fault.
  const absl::Status& status() const { return status_; }

 private:
  // The value of `key`; null where there is none, or after a fault.
  const nlohmann::json* Find(const char* key) const;
  void Wanted(const char* key, const std::string& wanted);

  const std::string model_;
  const nlohmann::json& config_;
  absl::Status status_;
};

}  // namespace mir::models

#endif  // MIR_MODELS_CONFIG_READER_H_
