#ifndef MIR_DATA_NIFTI_H_
#define MIR_DATA_NIFTI_H_

#include <ATen/core/ATen_fwd.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mir/data/volume.h"

namespace mir::data {

// Reads a NIfTI-1 or NIfTI-2 image, plain or compressed with gzip (told by its
// first bytes, not by its name), of either byte order. Header fields follow the
// standard: voxels are scl_slope * stored + scl_inter unless the slope is 0;
// the sform gives the place where its code is above 0, else the qform, else
// the spacing alone.
//
// Integers of 8 to 64 bits and float32 or float64 are read; the last may be
// rounded to float32. Volumes are 3-D; [X, Y] and [X, Y, Z, 1] count as such.
//
// Nothing of a file is trusted: sizes are checked against its length before
// memory is taken, compressed data against their checksum.
//
// Each message names the file. NOT_FOUND: there is none. DATA_LOSS: it is cut
// short (bytes wanted and got), or its checksum is wrong. INVALID_ARGUMENT: it
// is no NIfTI, or a time series, colour, complex or header-only (.hdr) file;
// its place in space is undefined; or it has voxels that are not finite (how
// many, and the first).
absl::StatusOr<Volume> ReadImage(const std::string& path);

// Likewise for labels: int32 voxels. INVALID_ARGUMENT too if a voxel is no
// integer of 32 bits (its index and value). Whole numbers stored as floats are
// accepted, and scaled ones within a thousandth of a whole number.
absl::StatusOr<Volume> ReadLabels(const std::string& path);

// Reads what WriteVoxelDisplacement wrote: voxels [3, D, H, W] float32, in
// voxels, channel k along axis k. INVALID_ARGUMENT too for any other file.
absl::StatusOr<Volume> ReadVoxelDisplacement(const std::string& path);

// Reads the header alone, and checks that the file is as long as it says: the
// errors of ReadImage but for checksums (of most compressed files) and values.
absl::StatusOr<Grid> ReadGrid(const std::string& path);

// The functions below write to a temporary name and rename: `path` never holds
// half a file. It must end in .nii or .nii.gz (compressed). The grid is
// `reference.grid`, which the voxels must fit; if the reference was read from a
// file, qform, sform, their codes, units and the NIfTI version are that file's.
//
// Leading axes of size 1 are dropped; any device. INVALID_ARGUMENT for a shape
// or dtype that does not fit, or another ending; otherwise the reason that the
// system gives.

// voxels [D, H, W], floating; written as float32.
absl::Status WriteImage(const std::string& path, const at::Tensor& voxels,
                        const Volume& reference);

// voxels [D, H, W], an integer dtype; written as the first of uint8, int16 and
// int32 that holds them, with slope 1 and intercept 0.
absl::Status WriteLabels(const std::string& path, const at::Tensor& voxels,
                         const Volume& reference);

// displacement [3, D, H, W], floating, in voxels, channel k along axis k:
// the warped image at x is the moving one at x + displacement(x), both on the
// reference's grid. Writes [X, Y, Z, 1, 3] float32 of intent 1007 (vector): the
// same field in mm, x and y negated (LPS), as ITK's and ANTs' transforms read.
// Where the reference file's sform and qform disagree, or it has neither, the
// directions are those that ITK takes: then the field fits images with the same
// header.
absl::Status WriteItkDisplacement(const std::string& path,
                                  const at::Tensor& displacement,
                                  const Volume& reference);

// As above with the values as they are, in voxels.
absl::Status WriteVoxelDisplacement(const std::string& path,
                                    const at::Tensor& displacement,
                                    const Volume& reference);

}  // namespace mir::data

#endif  // MIR_DATA_NIFTI_H_
