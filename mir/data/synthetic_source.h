#ifndef MIR_DATA_SYNTHETIC_SOURCE_H_
#define MIR_DATA_SYNTHETIC_SOURCE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "mir/data/source.h"

namespace mir::data {

struct SyntheticOptions {
  uint64_t seed = 0;
  std::vector<int64_t> size = {32, 32, 32};  // Two or three axes, 8 or more.
  int64_t count = 64;                        // Pairs per epoch.
  int64_t labels = 5;                        // Besides the background, 0.
  // Strength of the deformation: its velocity's standard deviation as a share
  // of the mean size. The default leaves a Dice of about 0.65.
  double deformation = 0.035;
  // A stream apart from the training pairs', the same pairs in every epoch.
  bool validation = false;
};

// Pairs made up on the fly: a random body of random smooth regions, each with
// its label and its grey value, a faint texture and noise; the moving image is
// the fixed one under a random diffeomorphism, with noise of its own. Values
// are in [0, 1]; background is about 0. Learning to register such shapes
// follows SynthMorph (Hoffmann et al., IEEE TMI 2022).
class SyntheticSource : public PairSource {
 public:
  // INVALID_ARGUMENT names the option that cannot be.
  static absl::StatusOr<std::unique_ptr<SyntheticSource>> Make(
      const SyntheticOptions& options);

  int64_t size() const override { return options_.count; }
  absl::StatusOr<Pair> Get(int64_t epoch, int64_t index) const override;

 private:
  explicit SyntheticSource(const SyntheticOptions& options)
      : options_(options) {}

  const SyntheticOptions options_;
};

}  // namespace mir::data

#endif  // MIR_DATA_SYNTHETIC_SOURCE_H_
