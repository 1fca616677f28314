#ifndef MIR_DATA_ATLAS_SOURCE_H_
#define MIR_DATA_ATLAS_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "mir/data/grid.h"
#include "mir/data/prepare.h"
#include "mir/data/source.h"
#include "mir/data/volume.h"

namespace mir::data {

struct AtlasOptions {
  std::string image;   // A NIfTI file.
  std::string labels;  // Its labels, or empty: pairs then have none.
  PrepareOptions prepare;
  uint64_t seed = 0;
  int64_t count = 64;  // Pairs per epoch.
  // Strength of each copy's deformation: its velocity's standard deviation as
  // a share of the mean size.
  double deformation = 0.015;
};

// Pairs made from one real volume: both images are copies of it under random
// diffeomorphisms of their own. Labels move along, so that registration can be
// measured. The volume is resampled to the spacing if one is given, and cut to
// the box of its labels (without labels: of its values above 0) and 8 mm
// around it.
class AtlasSource : public PairSource {
 public:
  // The errors of ReadImage, ReadLabels, CheckLabels and of the options.
  static absl::StatusOr<std::unique_ptr<AtlasSource>> Make(
      const AtlasOptions& options);

  // `count` pairs of the same volume from a stream apart from the training
  // pairs', the same in every epoch. INVALID_ARGUMENT for a count below 1.
  absl::StatusOr<std::unique_ptr<AtlasSource>> Validation(int64_t count) const;

  int64_t size() const override { return options_.count; }
  absl::StatusOr<Pair> Get(int64_t epoch, int64_t index) const override;

  // The undeformed volume on the grid of all pairs.
  const Volume& image() const { return image_; }

 private:
  explicit AtlasSource(const AtlasOptions& options) : options_(options) {}

  AtlasOptions options_;
  bool validation_ = false;
  Volume image_;
  Volume labels_;  // Undefined voxels where there are none.
};

}  // namespace mir::data

#endif  // MIR_DATA_ATLAS_SOURCE_H_
