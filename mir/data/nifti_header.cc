#include "mir/data/nifti_header.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "mir/base/status_macros.h"

namespace mir::data {
namespace {

constexpr int kNifti1Bytes = 348;
constexpr int kNifti2Bytes = 540;
constexpr int64_t kMaxAxis = int64_t{1} << 24;
constexpr int64_t kMaxVoxels = int64_t{1} << 40;

absl::Status Refuse(const std::string& path, absl::string_view why) {
  return absl::InvalidArgumentError(absl::StrCat(path, " ", why));
}

int32_t Swapped(int32_t value) {
  nifti_swap_4bytes(1, &value);
  return value;
}

// float to the nearest integer that fits; NaN to 0.
int64_t ToInteger(double value) {
  if (!(std::abs(value) < 9e18)) return value > 0 ? int64_t{1} << 62 : -1;
  return static_cast<int64_t>(value);
}

nifti_2_header Widened(const nifti_1_header& from) {
  nifti_2_header to = {};
  to.sizeof_hdr = kNifti2Bytes;
  std::memcpy(to.magic, from.magic, 4);
  to.datatype = from.datatype;
  to.bitpix = from.bitpix;
  std::copy(std::begin(from.dim), std::end(from.dim), to.dim);
  to.intent_p1 = from.intent_p1;
  to.intent_p2 = from.intent_p2;
  to.intent_p3 = from.intent_p3;
  std::copy(std::begin(from.pixdim), std::end(from.pixdim), to.pixdim);
  to.vox_offset = std::isnan(from.vox_offset) ? -1 : ToInteger(from.vox_offset);
  to.scl_slope = from.scl_slope;
  to.scl_inter = from.scl_inter;
  to.cal_max = from.cal_max;
  to.cal_min = from.cal_min;
  to.slice_duration = from.slice_duration;
  to.toffset = from.toffset;
  to.slice_start = from.slice_start;
  to.slice_end = from.slice_end;
  std::memcpy(to.descrip, from.descrip, sizeof(from.descrip));
  std::memcpy(to.aux_file, from.aux_file, sizeof(from.aux_file));
  to.qform_code = from.qform_code;
  to.sform_code = from.sform_code;
  to.quatern_b = from.quatern_b;
  to.quatern_c = from.quatern_c;
  to.quatern_d = from.quatern_d;
  to.qoffset_x = from.qoffset_x;
  to.qoffset_y = from.qoffset_y;
  to.qoffset_z = from.qoffset_z;
  std::copy(std::begin(from.srow_x), std::end(from.srow_x), to.srow_x);
  std::copy(std::begin(from.srow_y), std::end(from.srow_y), to.srow_y);
  std::copy(std::begin(from.srow_z), std::end(from.srow_z), to.srow_z);
  to.slice_code = from.slice_code;
  to.xyzt_units = from.xyzt_units;
  to.intent_code = from.intent_code;
  std::memcpy(to.intent_name, from.intent_name, sizeof(from.intent_name));
  to.dim_info = from.dim_info;
  return to;
}

// The inverse of Widened for what HeaderFor makes.
nifti_1_header Narrowed(const nifti_2_header& from) {
  nifti_1_header to = {};
  to.sizeof_hdr = kNifti1Bytes;
  to.regular = 'r';
  std::memcpy(to.magic, "n+1", 4);
  to.datatype = from.datatype;
  to.bitpix = from.bitpix;
  const auto narrow = [](const auto* values, int count, auto* result) {
    for (int i = 0; i < count; ++i) {
      result[i] = static_cast<std::decay_t<decltype(*result)>>(values[i]);
    }
  };
  narrow(from.dim, 8, to.dim);
  narrow(from.pixdim, 8, to.pixdim);
  narrow(from.srow_x, 4, to.srow_x);
  narrow(from.srow_y, 4, to.srow_y);
  narrow(from.srow_z, 4, to.srow_z);
  to.vox_offset = kNifti1Bytes + 4;
  to.scl_slope = static_cast<float>(from.scl_slope);
  to.scl_inter = static_cast<float>(from.scl_inter);
  std::memcpy(to.descrip, from.descrip, sizeof(to.descrip));
  to.qform_code = static_cast<int16_t>(from.qform_code);
  to.sform_code = static_cast<int16_t>(from.sform_code);
  to.quatern_b = static_cast<float>(from.quatern_b);
  to.quatern_c = static_cast<float>(from.quatern_c);
  to.quatern_d = static_cast<float>(from.quatern_d);
  to.qoffset_x = static_cast<float>(from.qoffset_x);
  to.qoffset_y = static_cast<float>(from.qoffset_y);
  to.qoffset_z = static_cast<float>(from.qoffset_z);
  to.xyzt_units = static_cast<char>(from.xyzt_units);
  to.intent_code = static_cast<int16_t>(from.intent_code);
  std::memcpy(to.intent_name, from.intent_name, sizeof(to.intent_name));
  to.dim_info = from.dim_info;
  return to;
}

// Reads either version's fields in this machine's byte order.
absl::StatusOr<NiftiHeader> ReadFields(const std::string& path,
                                       ByteInput& input) {
  NiftiHeader header;
  union {
    int32_t size;
    nifti_1_header one;
    nifti_2_header two;
  } raw = {};
  MIR_ASSIGN_OR_RETURN(int64_t got, input.Read(&raw, 4));
  if (got < 4) {
    return absl::DataLossError(
        absl::StrCat(path, " is cut short: a NIfTI header has ", kNifti1Bytes,
                     " bytes, it holds ", got));
  }
  header.swapped = raw.size != kNifti1Bytes && raw.size != kNifti2Bytes;
  const int32_t size = header.swapped ? Swapped(raw.size) : raw.size;
  if (size != kNifti1Bytes && size != kNifti2Bytes) {
    return Refuse(path,
                  "is no NIfTI file: its header does not begin with the "
                  "number 348 or 540");
  }
  MIR_ASSIGN_OR_RETURN(got,
                       input.Read(reinterpret_cast<char*>(&raw) + 4, size - 4));
  if (got < size - 4) {
    return absl::DataLossError(
        absl::StrCat(path, " is cut short: its header has ", size,
                     " bytes, it holds ", got + 4));
  }
  header.version = size == kNifti1Bytes ? 1 : 2;
  if (header.version == 1) {
    if (header.swapped) nifti_swap_as_nifti1(&raw.one);
    header.fields = Widened(raw.one);
  } else {
    if (header.swapped) nifti_swap_as_nifti2(&raw.two);
    header.fields = raw.two;
  }

  const std::string magic(header.fields.magic, 3);
  if (magic == absl::StrCat("ni", header.version)) {
    return Refuse(path,
                  "is the header of a pair of files (.hdr and .img); convert "
                  "them to one .nii file");
  }
  if (magic != absl::StrCat("n+", header.version)) {
    return Refuse(path, absl::StrCat("is no NIfTI-", header.version,
                                     " file: its magic string is wrong (an "
                                     "ANALYZE file has none)"));
  }
  return header;
}

absl::Status CheckSizes(const std::string& path, NiftiHeader& header,
                        int64_t components) {
  int64_t* const dim = header.fields.dim;
  if (dim[0] < 1 || dim[0] > 7) {
    return Refuse(path, absl::StrCat("has a damaged header: it says ", dim[0],
                                     " dimensions; NIfTI has 1 to 7"));
  }
  for (int axis = static_cast<int>(dim[0]) + 1; axis < 8; ++axis) dim[axis] = 1;
  const std::string sizes =
      absl::StrJoin(dim + 1, dim + 1 + std::max<int64_t>(dim[0], 3), "x");
  double voxels = 1;
  for (int axis = 1; axis < 8; ++axis) {
    if (dim[axis] < 1 || dim[axis] > kMaxAxis) {
      return Refuse(path,
                    absl::StrCat("has a damaged header: its size is ", sizes));
    }
    voxels *= static_cast<double>(dim[axis]);
  }
  const int64_t wanted[] = {1, components, 1, 1};
  if (components > 1 && !std::equal(dim + 4, dim + 8, wanted)) {
    return Refuse(path, absl::StrCat("is ", dim[0], "-D (", sizes,
                                     "); wanted a field of ", components,
                                     "-D vectors, XxYxZx1x", components));
  }
  if (components == 1 && !std::equal(dim + 4, dim + 8, wanted)) {
    const bool series = dim[4] > 1;
    return Refuse(path,
                  absl::StrCat("is ", dim[0], "-D (", sizes, "), ",
                               series ? "a time series" : "a field of vectors",
                               "; wanted one 3-D volume, so split it first"));
  }
  if (voxels > static_cast<double>(kMaxVoxels)) {
    return Refuse(path,
                  absl::StrCat("has a damaged header: its size is ", sizes));
  }
  return absl::OkStatus();
}

absl::Status CheckDatatype(const std::string& path, const NiftiHeader& header) {
  const int datatype = header.fields.datatype;
  switch (datatype) {
    case DT_INT8:
    case DT_UINT8:
    case DT_INT16:
    case DT_UINT16:
    case DT_INT32:
    case DT_UINT32:
    case DT_INT64:
    case DT_UINT64:
    case DT_FLOAT32:
    case DT_FLOAT64:
      return absl::OkStatus();
    case DT_RGB24:
    case DT_RGBA32:
      return Refuse(path,
                    absl::StrCat("holds colours (NIfTI datatype ", datatype,
                                 "); wanted one value per voxel"));
    case DT_COMPLEX64:
    case DT_COMPLEX128:
    case DT_COMPLEX256:
      return Refuse(
          path, absl::StrCat("holds complex numbers (NIfTI datatype ", datatype,
                             "); wanted one value per voxel, such as "
                             "their magnitude"));
    default:
      return Refuse(
          path, absl::StrCat("has voxels of NIfTI datatype ", datatype, " (",
                             nifti_datatype_string(datatype),
                             "); wanted integers of 8 to 64 bits, float32 or "
                             "float64"));
  }
}

Affine FromLibrary(const nifti_dmat44& matrix) {
  Affine result;
  for (int row = 0; row < 4; ++row) {
    std::copy(matrix.m[row], matrix.m[row] + 4, result[row].begin());
  }
  return result;
}

// Sets the qform to `affine`, and its code, unless the axes are not
// perpendicular: a rotation cannot say that.
void SetQform(const Affine& affine, nifti_2_header& fields) {
  nifti_dmat44 matrix = {};
  for (int row = 0; row < 4; ++row) {
    std::copy(affine[row].begin(), affine[row].end(), matrix.m[row]);
  }
  double qfac;
  nifti_dmat44_to_quatern(
      matrix, &fields.quatern_b, &fields.quatern_c, &fields.quatern_d,
      &fields.qoffset_x, &fields.qoffset_y, &fields.qoffset_z,
      &fields.pixdim[1], &fields.pixdim[2], &fields.pixdim[3], &qfac);
  fields.pixdim[0] = qfac;
  const Affine back = FromLibrary(nifti_quatern_to_dmat44(
      fields.quatern_b, fields.quatern_c, fields.quatern_d, fields.qoffset_x,
      fields.qoffset_y, fields.qoffset_z, fields.pixdim[1], fields.pixdim[2],
      fields.pixdim[3], qfac));
  double error = 0, largest = 0;
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 3; ++column) {
      error =
          std::max(error, std::abs(back[row][column] - affine[row][column]));
      largest = std::max(largest, std::abs(affine[row][column]));
    }
  }
  fields.qform_code = error < 1e-4 * largest ? NIFTI_XFORM_ALIGNED_ANAT : 0;
}

}  // namespace

std::array<int64_t, 3> NiftiHeader::size() const {
  return {fields.dim[1], fields.dim[2], fields.dim[3]};
}

int64_t NiftiHeader::value_count() const {
  return fields.dim[1] * fields.dim[2] * fields.dim[3] * fields.dim[5];
}

int NiftiHeader::bytes_per_voxel() const {
  int bytes = 0, swap_size = 0;
  nifti_datatype_sizes(fields.datatype, &bytes, &swap_size);
  return bytes;
}

bool NiftiHeader::scaled() const {
  return std::isfinite(fields.scl_slope) && fields.scl_slope != 0 &&
         (fields.scl_slope != 1 || fields.scl_inter != 0);
}

absl::StatusOr<std::shared_ptr<const NiftiHeader>> ParseNiftiHeader(
    const std::string& path, ByteInput& input, int64_t components) {
  absl::StatusOr<NiftiHeader> read = ReadFields(path, input);
  if (!read.ok()) return read.status();
  NiftiHeader& header = *read;
  MIR_RETURN_IF_ERROR(CheckSizes(path, header, components));
  MIR_RETURN_IF_ERROR(CheckDatatype(path, header));
  if (header.scaled() && !std::isfinite(header.fields.scl_inter)) {
    return Refuse(path,
                  "has a damaged header: its scl_slope is valid but its "
                  "scl_inter is not finite");
  }

  const int64_t header_bytes =
      header.version == 1 ? kNifti1Bytes : kNifti2Bytes;
  int64_t& offset = header.fields.vox_offset;
  if (offset >= 0 && offset < header_bytes) offset = header_bytes + 4;
  if (offset < 0 || offset > int64_t{1} << 40) {
    return Refuse(path, "has a damaged header: its vox_offset is impossible");
  }
  const int64_t wanted =
      offset + header.value_count() * header.bytes_per_voxel();
  if (wanted > input.MaxBytes()) {
    return absl::DataLossError(absl::StrCat(
        path, " is cut short: its header promises ", wanted, " bytes, ",
        input.compressed() ? "so few compressed ones cannot hold more than "
                           : "it holds ",
        input.MaxBytes()));
  }
  MIR_ASSIGN_OR_RETURN(const int64_t skipped,
                       input.Skip(offset - header_bytes));
  if (skipped < offset - header_bytes) {
    return absl::DataLossError(
        absl::StrCat(path, " is cut short: its header promises ", wanted,
                     " bytes, it holds ", header_bytes + skipped));
  }
  return std::make_shared<const NiftiHeader>(header);
}

absl::StatusOr<Grid> GridOf(const std::string& path,
                            const NiftiHeader& header) {
  const nifti_2_header& fields = header.fields;
  std::array<double, 3> spacing;
  for (int axis = 0; axis < 3; ++axis) {
    const double along = std::abs(fields.pixdim[1 + axis]);
    spacing[axis] = std::isfinite(along) && along > 0 ? along : 1;
  }
  Grid grid;
  grid.size = header.size();
  const char* source = "spacing";
  if (fields.sform_code > 0) {
    source = "sform";
    std::copy(fields.srow_x, fields.srow_x + 4, grid.to_world[0].begin());
    std::copy(fields.srow_y, fields.srow_y + 4, grid.to_world[1].begin());
    std::copy(fields.srow_z, fields.srow_z + 4, grid.to_world[2].begin());
  } else if (fields.qform_code > 0) {
    source = "qform";
    grid.to_world = FromLibrary(nifti_quatern_to_dmat44(
        fields.quatern_b, fields.quatern_c, fields.quatern_d, fields.qoffset_x,
        fields.qoffset_y, fields.qoffset_z, spacing[0], spacing[1], spacing[2],
        fields.pixdim[0] < 0 ? -1 : 1));
  } else {
    for (int axis = 0; axis < 3; ++axis) {
      grid.to_world[axis][axis] = spacing[axis];
    }
  }
  if (!IsInvertible(grid.to_world)) {
    return Refuse(path, absl::StrCat("has an impossible place in space: its ",
                                     source, " is singular or not finite"));
  }
  return grid;
}

NiftiHeader HeaderFor(const Grid& grid, const NiftiHeader* reference) {
  NiftiHeader header;
  nifti_2_header& to = header.fields;
  to.pixdim[0] = 1;
  std::fill(to.pixdim + 4, to.pixdim + 8, 1.0);
  if (reference != nullptr) {
    const nifti_2_header& from = reference->fields;
    header.version = reference->version;
    std::copy(from.pixdim, from.pixdim + 4, to.pixdim);
    to.qform_code = from.qform_code;
    to.sform_code = from.sform_code;
    to.quatern_b = from.quatern_b;
    to.quatern_c = from.quatern_c;
    to.quatern_d = from.quatern_d;
    to.qoffset_x = from.qoffset_x;
    to.qoffset_y = from.qoffset_y;
    to.qoffset_z = from.qoffset_z;
    std::copy(from.srow_x, from.srow_x + 4, to.srow_x);
    std::copy(from.srow_y, from.srow_y + 4, to.srow_y);
    std::copy(from.srow_z, from.srow_z + 4, to.srow_z);
    to.xyzt_units = from.xyzt_units;
    to.dim_info = from.dim_info;
  } else {
    SetQform(grid.to_world, to);
    to.sform_code = NIFTI_XFORM_ALIGNED_ANAT;
    std::copy(grid.to_world[0].begin(), grid.to_world[0].end(), to.srow_x);
    std::copy(grid.to_world[1].begin(), grid.to_world[1].end(), to.srow_y);
    std::copy(grid.to_world[2].begin(), grid.to_world[2].end(), to.srow_z);
    to.xyzt_units = NIFTI_UNITS_MM;
  }
  std::fill(to.dim, to.dim + 8, 1);
  to.dim[0] = 3;
  std::copy(grid.size.begin(), grid.size.end(), to.dim + 1);
  to.scl_slope = 1;
  std::strncpy(to.descrip, "MIR", sizeof(to.descrip) - 1);
  return header;
}

std::string SerializeNiftiHeader(const NiftiHeader& header) {
  const nifti_2_header& fields = header.fields;
  const bool one =
      header.version == 1 && *std::max_element(fields.dim, fields.dim + 8) <=
                                 std::numeric_limits<int16_t>::max();
  std::string bytes;
  if (one) {
    const nifti_1_header narrow = Narrowed(fields);
    bytes.assign(reinterpret_cast<const char*>(&narrow), kNifti1Bytes);
  } else {
    nifti_2_header wide = fields;
    wide.sizeof_hdr = kNifti2Bytes;
    std::memcpy(wide.magic, "n+2\0\r\n\032\n", 8);
    wide.vox_offset = kNifti2Bytes + 4;
    bytes.assign(reinterpret_cast<const char*>(&wide), kNifti2Bytes);
  }
  bytes.append(4, '\0');  // No extensions.
  return bytes;
}

}  // namespace mir::data
