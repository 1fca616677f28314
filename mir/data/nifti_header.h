#ifndef MIR_DATA_NIFTI_HEADER_H_
#define MIR_DATA_NIFTI_HEADER_H_

#include <nifti2_io.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "mir/data/byte_input.h"
#include "mir/data/grid.h"

namespace mir::data {

// A header in this machine's byte order, with NIfTI-2's fields whatever the
// version of the file.
struct NiftiHeader {
  nifti_2_header fields = {};
  int version = 1;
  bool swapped = false;  // The file's voxels have the other byte order.

  // These hold for what ParseNiftiHeader returns.
  std::array<int64_t, 3> size() const;
  int64_t value_count() const;  // Of all voxels and their components.
  int bytes_per_voxel() const;
  bool scaled() const;  // Whether scl_slope and scl_inter change the values.
};

// Reads and checks a header; `input` stands at the file's first byte, and after
// it at the first voxel. What comes back describes a 3-D volume of a known
// dtype whose voxels the file may be long enough to hold; the errors are those
// of ReadImage. With more than one of `components` it describes a field of such
// vectors, [X, Y, Z, 1, components], and refuses anything else. Never writes to
// the terminal.
absl::StatusOr<std::shared_ptr<const NiftiHeader>> ParseNiftiHeader(
    const std::string& path, ByteInput& input, int64_t components = 1);

// Where a header says that its voxels lie. INVALID_ARGUMENT if nowhere: the
// matrix is singular or not finite.
absl::StatusOr<Grid> GridOf(const std::string& path, const NiftiHeader& header);

// A header for voxels on `grid`: `reference`'s forms, codes and units where
// there is one, else forms made from the grid (no qform if it is sheared).
NiftiHeader HeaderFor(const Grid& grid, const NiftiHeader* reference);

// The header as a file begins with it, up to the first voxel: in the header's
// version, or in NIfTI-2 if a size needs it.
std::string SerializeNiftiHeader(const NiftiHeader& header);

}  // namespace mir::data

#endif  // MIR_DATA_NIFTI_HEADER_H_
