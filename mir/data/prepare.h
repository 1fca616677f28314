#ifndef MIR_DATA_PREPARE_H_
#define MIR_DATA_PREPARE_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/types/optional.h"
#include "mir/data/grid.h"
#include "mir/data/intensity.h"
#include "mir/data/pair.h"
#include "mir/data/volume.h"

namespace mir::data {

// How volumes are brought before a network, in training and after it alike.
struct PrepareOptions {
  Intensity intensity;
  // Resample both images to cubes of this size, with axes exactly RAS, over
  // the fixed image's field of view; 0 leaves the voxels as they are.
  double spacing_mm = 0;
  // Without a spacing: reorder and reverse axes to RAS, so that volumes stored
  // in different ways look alike. Off for networks that were trained (in
  // Python) on arrays as they are stored.
  bool reorient = true;
};

// The grid that a network sees a pair on.
//
// INVALID_ARGUMENT if the images lie on different grids and no spacing is
// given: it names the files and both grids, and what to do.
absl::StatusOr<Grid> NetworkGrid(const std::string& fixed_name,
                                 const Grid& fixed,
                                 const std::string& moving_name,
                                 const Grid& moving,
                                 const PrepareOptions& options);

// Reads an image and maps its intensities; the errors of ReadImage.
// INVALID_ARGUMENT too where all values of an image lie on one side of a
// window: then the window, or the file's scl_slope and scl_inter, is wrong.
absl::StatusOr<Volume> ReadNormalized(const std::string& path,
                                      const Intensity& intensity);

// The volumes of a pair; labels may be absent.
struct PairVolumes {
  Volume fixed;
  Volume moving;
  absl::optional<Volume> fixed_labels;
  absl::optional<Volume> moving_labels;
};

// INVALID_ARGUMENT if `labels` do not lie on the image's grid: it names the
// files, and both shapes or both grids.
absl::Status CheckLabels(const std::string& image_name, const Grid& image,
                         const std::string& labels_name, const Grid& labels);

// Brings all volumes of a pair (normalized already) onto its NetworkGrid, with
// the errors of NetworkGrid and CheckLabels. Outside a volume images and labels
// read 0.
absl::StatusOr<PairVolumes> PreparePair(const PairVolumes& pair,
                                        const PrepareOptions& options);

// The tensors of a prepared pair; labels only if both are there.
Pair PairOf(const PairVolumes& prepared);

}  // namespace mir::data

#endif  // MIR_DATA_PREPARE_H_
