#include "mir/data/nifti.h"

#include <ATen/ops/empty.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "mir/base/catch_torch.h"
#include "mir/base/status_macros.h"
#include "mir/data/byte_input.h"
#include "mir/data/nifti_header.h"

namespace mir::data {
namespace {

constexpr int64_t kVoxelsAtOnce = 1 << 16;

// The name of the intent of displacements in voxels.
constexpr char kVoxelIntent[] = "voxels";

// ---- Reading ----

// The voxel at position `at` of the file, as "(i, j, k)".
std::string IndexOf(int64_t at, const std::array<int64_t, 3>& size) {
  return absl::StrCat("(", at % size[0], ", ", at / size[0] % size[1], ", ",
                      at / (size[0] * size[1]) % size[2], ")");
}

// Takes voxels in the file's order and tells in the end what was wrong.
template <typename To>
class Collector;

// float32, scaled.
template <>
class Collector<float> {
 public:
  explicit Collector(const NiftiHeader& header)
      : scaled_(header.scaled()),
        slope_(header.fields.scl_slope),
        inter_(header.fields.scl_inter) {}

  template <typename Stored>
  void Take(const Stored* stored, int64_t count, int64_t at, float* voxels) {
    if (scaled_) {
      for (int64_t i = 0; i < count; ++i) {
        voxels[i] = static_cast<float>(slope_ * static_cast<double>(stored[i]) +
                                       inter_);
      }
    } else {
      for (int64_t i = 0; i < count; ++i) {
        voxels[i] = static_cast<float>(stored[i]);
      }
    }
    for (int64_t i = 0; i < count; ++i) {
      if (!std::isfinite(voxels[i]) && bad_++ == 0) first_bad_ = at + i;
    }
  }

  absl::Status Finish(const std::string& path,
                      const std::array<int64_t, 3>& size) const {
    if (bad_ == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat(
        path, " has ", bad_, " voxels that are NaN or infinite, the first at ",
        IndexOf(first_bad_, size)));
  }

 private:
  const bool scaled_;
  const double slope_;
  const double inter_;
  int64_t bad_ = 0;
  int64_t first_bad_ = 0;
};

// int32, for labels.
template <>
class Collector<int32_t> {
 public:
  explicit Collector(const NiftiHeader& header)
      : scaled_(header.scaled()),
        slope_(header.fields.scl_slope),
        inter_(header.fields.scl_inter) {}

  template <typename Stored>
  void Take(const Stored* stored, int64_t count, int64_t at, int32_t* voxels) {
    for (int64_t i = 0; i < count; ++i) {
      double value = static_cast<double>(stored[i]);
      if (scaled_) value = slope_ * value + inter_;
      const double whole = std::nearbyint(value);
      // A slope is rounded itself; unscaled values must be exact.
      if (!(std::abs(value - whole) <= (scaled_ ? 1e-3 : 0)) ||
          !(std::abs(whole) <= std::numeric_limits<int32_t>::max())) {
        if (bad_++ == 0) {
          first_bad_ = at + i;
          bad_value_ = value;
        }
        voxels[i] = 0;
        continue;
      }
      voxels[i] = static_cast<int32_t>(whole);
    }
  }

  absl::Status Finish(const std::string& path,
                      const std::array<int64_t, 3>& size) const {
    if (bad_ == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrFormat(
        "%s is no label file: %d voxels are not whole numbers of 32 bits, the "
        "first is %.9g at %s",
        path, bad_, bad_value_, IndexOf(first_bad_, size)));
  }

 private:
  const bool scaled_;
  const double slope_;
  const double inter_;
  int64_t bad_ = 0;
  int64_t first_bad_ = 0;
  double bad_value_ = 0;
};

template <typename Stored, typename To>
absl::Status ReadVoxelsOf(const std::string& path, const NiftiHeader& header,
                          ByteInput& input, To* voxels) {
  Collector<To> collector(header);
  const int64_t count = header.value_count();
  const int64_t wanted = count * static_cast<int64_t>(sizeof(Stored));
  std::vector<Stored> stored(std::min(count, kVoxelsAtOnce));
  for (int64_t at = 0; at < count; at += kVoxelsAtOnce) {
    const int64_t here = std::min(kVoxelsAtOnce, count - at);
    const int64_t bytes = here * static_cast<int64_t>(sizeof(Stored));
    const absl::StatusOr<int64_t> got = input.Read(stored.data(), bytes);
    if (!got.ok()) {
      if (got.status().code() != absl::StatusCode::kDataLoss) {
        return got.status();
      }
      return absl::DataLossError(
          absl::StrCat(got.status().message(), "; the header promises ",
                       header.fields.vox_offset + wanted));
    }
    if (*got < bytes) {
      const int64_t before = at * static_cast<int64_t>(sizeof(Stored));
      return absl::DataLossError(
          absl::StrCat(path, " is cut short: its header promises ",
                       header.fields.vox_offset + wanted, " bytes, it holds ",
                       header.fields.vox_offset + before + *got));
    }
    if (header.swapped && sizeof(Stored) > 1) {
      nifti_swap_Nbytes(here, sizeof(Stored), stored.data());
    }
    collector.Take(stored.data(), here, at, voxels + at);
  }
  // A checksum stands behind the voxels.
  MIR_RETURN_IF_ERROR(input.Skip(std::numeric_limits<int64_t>::max()).status());
  return collector.Finish(path, header.size());
}

template <typename To>
absl::Status ReadVoxels(const std::string& path, const NiftiHeader& header,
                        ByteInput& input, To* voxels) {
  switch (header.fields.datatype) {
    case DT_INT8:
      return ReadVoxelsOf<int8_t>(path, header, input, voxels);
    case DT_UINT8:
      return ReadVoxelsOf<uint8_t>(path, header, input, voxels);
    case DT_INT16:
      return ReadVoxelsOf<int16_t>(path, header, input, voxels);
    case DT_UINT16:
      return ReadVoxelsOf<uint16_t>(path, header, input, voxels);
    case DT_INT32:
      return ReadVoxelsOf<int32_t>(path, header, input, voxels);
    case DT_UINT32:
      return ReadVoxelsOf<uint32_t>(path, header, input, voxels);
    case DT_INT64:
      return ReadVoxelsOf<int64_t>(path, header, input, voxels);
    case DT_UINT64:
      return ReadVoxelsOf<uint64_t>(path, header, input, voxels);
    case DT_FLOAT32:
      return ReadVoxelsOf<float>(path, header, input, voxels);
    default:  // ParseNiftiHeader let nothing else pass.
      return ReadVoxelsOf<double>(path, header, input, voxels);
  }
}

template <typename To>
absl::StatusOr<Volume> Read(const std::string& path, at::ScalarType dtype,
                            int64_t components = 1) {
  MIR_ASSIGN_OR_RETURN(const std::unique_ptr<ByteInput> input,
                       ByteInput::Open(path));
  Volume volume;
  volume.name = path;
  MIR_ASSIGN_OR_RETURN(volume.header,
                       ParseNiftiHeader(path, *input, components));
  MIR_ASSIGN_OR_RETURN(volume.grid, GridOf(path, *volume.header));
  const std::array<int64_t, 3> size = volume.grid.size;
  const absl::Status status = CatchTorch([&]() -> absl::Status {
    // The file's first axis varies fastest.
    const at::Tensor voxels =
        at::empty({components, size[2], size[1], size[0]}, dtype);
    MIR_RETURN_IF_ERROR(ReadVoxels(path, *volume.header, *input,
                                   voxels.mutable_data_ptr<To>()));
    volume.voxels = voxels.permute({0, 3, 2, 1}).contiguous();
    if (components == 1) volume.voxels = volume.voxels.squeeze(0);
    return absl::OkStatus();
  });
  if (status.code() == absl::StatusCode::kResourceExhausted) {
    return absl::ResourceExhaustedError(
        absl::StrCat(path, " does not fit into memory (",
                     absl::StrJoin(size, "x"), " voxels): ", status.message()));
  }
  if (!status.ok()) return status;
  return volume;
}

// ---- Writing ----

// A file that appears under its name only when it is complete.
class AtomicOutput {
 public:
  explicit AtomicOutput(const std::string& path) : path_(path) {}

  ~AtomicOutput() {
    if (file_ != nullptr) gzclose(file_);
    if (!temporary_.empty()) unlink(temporary_.c_str());
  }

  absl::Status Open() {
    const bool compressed = absl::EndsWith(path_, ".nii.gz");
    if (!compressed && !absl::EndsWith(path_, ".nii")) {
      return absl::InvalidArgumentError(
          absl::StrCat(path_, ": wanted a name that ends in .nii or .nii.gz"));
    }
    static std::atomic<int64_t> counter{0};
    temporary_ =
        absl::StrCat(path_, ".", getpid(), ".", counter.fetch_add(1), ".tmp");
    errno = 0;
    file_ = gzopen(temporary_.c_str(), compressed ? "wb1" : "wbT");
    if (file_ == nullptr) {
      const absl::Status status = Failure();
      temporary_.clear();
      return status;
    }
    return absl::OkStatus();
  }

  absl::Status Write(const void* bytes, size_t count) {
    errno = 0;
    if (count > 0 && gzfwrite(bytes, 1, count, file_) != count) {
      return Failure();
    }
    return absl::OkStatus();
  }

  absl::Status Commit() {
    errno = 0;
    if (gzclose(std::exchange(file_, nullptr)) != Z_OK) return Failure();
    if (std::rename(temporary_.c_str(), path_.c_str()) != 0) return Failure();
    temporary_.clear();
    return absl::OkStatus();
  }

 private:
  absl::Status Failure() const {
    return absl::ErrnoToStatus(errno == 0 ? EIO : errno,
                               absl::StrCat("cannot write ", path_));
  }

  const std::string path_;
  std::string temporary_;
  gzFile file_ = nullptr;
};

// `voxels` without leading axes of size 1 beyond `dims`, on the CPU.
absl::StatusOr<at::Tensor> Squeezed(const std::string& path,
                                    const at::Tensor& voxels,
                                    at::IntArrayRef wanted) {
  at::Tensor result = voxels.defined() ? voxels : at::empty({0});
  while (result.dim() > static_cast<int64_t>(wanted.size()) &&
         result.size(0) == 1) {
    result = result.squeeze(0);
  }
  if (result.sizes() != wanted) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": wanted values of shape [", absl::StrJoin(wanted, ", "),
        "], as the reference has, got [", absl::StrJoin(voxels.sizes(), ", "),
        "]"));
  }
  return result.detach().cpu();
}

template <typename Stored>
absl::Status WriteFile(const std::string& path, NiftiHeader header,
                       int datatype, const at::Tensor& in_file_order) {
  header.fields.datatype = static_cast<int16_t>(datatype);
  header.fields.bitpix = 8 * sizeof(Stored);
  AtomicOutput output(path);
  MIR_RETURN_IF_ERROR(output.Open());
  const std::string start = SerializeNiftiHeader(header);
  MIR_RETURN_IF_ERROR(output.Write(start.data(), start.size()));
  MIR_RETURN_IF_ERROR(output.Write(
      in_file_order.const_data_ptr<Stored>(),
      static_cast<size_t>(in_file_order.numel()) * sizeof(Stored)));
  return output.Commit();
}

// [..., D, H, W] in the order of a file: the first spatial axis fastest.
at::Tensor InFileOrder(const at::Tensor& voxels, at::ScalarType dtype) {
  return voxels.to(dtype).transpose(-1, -3).contiguous();
}

absl::Status WriteDisplacement(const std::string& path,
                               const at::Tensor& displacement,
                               const Volume& reference, const Affine& linear,
                               const char* intent_name) {
  const auto& size = reference.grid.size;
  return CatchTorch([&]() -> absl::Status {
    MIR_ASSIGN_OR_RETURN(
        const at::Tensor voxels,
        Squeezed(path, displacement, {3, size[0], size[1], size[2]}));
    if (!voxels.is_floating_point()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": wanted a floating displacement, got ",
                       c10::toString(voxels.scalar_type())));
    }
    const at::Tensor precise = voxels.to(at::kDouble);
    at::Tensor vectors = at::empty(voxels.sizes(), at::kDouble);
    for (int row = 0; row < 3; ++row) {
      at::Tensor to = vectors.select(0, row);
      to.copy_(precise.select(0, 0)).mul_(linear[row][0]);
      to.add_(precise.select(0, 1), linear[row][1]);
      to.add_(precise.select(0, 2), linear[row][2]);
    }
    NiftiHeader header = HeaderFor(reference.grid, reference.header.get());
    header.fields.dim[0] = 5;
    header.fields.dim[5] = 3;
    header.fields.intent_code = NIFTI_INTENT_VECTOR;
    std::strncpy(header.fields.intent_name, intent_name,
                 sizeof(header.fields.intent_name) - 1);
    return WriteFile<float>(path, header, DT_FLOAT32,
                            InFileOrder(vectors, at::kFloat));
  });
}

bool HasPerpendicularAxes(const Affine& matrix) {
  for (int a = 0; a < 3; ++a) {
    const int b = (a + 1) % 3;
    double product = 0, length_a = 0, length_b = 0;
    for (int row = 0; row < 3; ++row) {
      product += matrix[row][a] * matrix[row][b];
      length_a += matrix[row][a] * matrix[row][a];
      length_b += matrix[row][b] * matrix[row][b];
    }
    if (std::abs(product) > 1e-3 * std::sqrt(length_a * length_b)) return false;
  }
  return true;
}

// Where ITK (5.4) takes a file's voxels to lie, if its forms disagree or there
// are none: its transforms work there. `is_ras` becomes false where ITK takes
// the file's axes for LPS ones.
absl::StatusOr<Affine> ItkAffine(const std::string& path,
                                 const Volume& reference, bool& is_ras) {
  NiftiHeader header = *reference.header;
  const bool has_qform = header.fields.qform_code > 0;
  const int sform_code = header.fields.sform_code;
  is_ras = has_qform || sform_code > 0;
  if (!has_qform || sform_code <= 0) return reference.grid.to_world;

  header.fields.sform_code = 0;
  MIR_ASSIGN_OR_RETURN(const Grid qform, GridOf(path, header));
  const bool sform_wins = HasPerpendicularAxes(reference.grid.to_world) &&
                          (sform_code == NIFTI_XFORM_SCANNER_ANAT ||
                           SameGrid(qform, reference.grid));
  return sform_wins ? reference.grid.to_world : qform.to_world;
}

}  // namespace

absl::StatusOr<Volume> ReadImage(const std::string& path) {
  return Read<float>(path, at::kFloat);
}

absl::StatusOr<Volume> ReadLabels(const std::string& path) {
  return Read<int32_t>(path, at::kInt);
}

absl::StatusOr<Volume> ReadVoxelDisplacement(const std::string& path) {
  MIR_ASSIGN_OR_RETURN(Volume field,
                       Read<float>(path, at::kFloat, /*components=*/3));
  if (std::strncmp(field.header->fields.intent_name, kVoxelIntent,
                   sizeof(field.header->fields.intent_name)) != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        " holds no displacement in voxels: the name of its intent is not "
        "\"",
        kVoxelIntent, "\", as of displacement_voxels.nii.gz"));
  }
  field.header = nullptr;
  return field;
}

absl::StatusOr<Grid> ReadGrid(const std::string& path) {
  MIR_ASSIGN_OR_RETURN(const std::unique_ptr<ByteInput> input,
                       ByteInput::Open(path));
  MIR_ASSIGN_OR_RETURN(const std::shared_ptr<const NiftiHeader> header,
                       ParseNiftiHeader(path, *input));
  if (input->compressed()) {
    // A good file's last bytes say how long it is. Where they say something
    // else it is cut short, or was made of several parts: read it to know.
    const int64_t voxel_bytes =
        header->value_count() * header->bytes_per_voxel();
    const int64_t wanted = header->fields.vox_offset + voxel_bytes;
    MIR_ASSIGN_OR_RETURN(const int64_t told, input->BytesAtEnd());
    if (told != (wanted & 0xFFFFFFFF)) {
      const absl::StatusOr<int64_t> got =
          input->Skip(std::numeric_limits<int64_t>::max());
      if (got.status().code() == absl::StatusCode::kDataLoss) {
        return absl::DataLossError(absl::StrCat(
            got.status().message(), "; the header promises ", wanted));
      }
      MIR_RETURN_IF_ERROR(got.status());
      if (*got < voxel_bytes) {
        return absl::DataLossError(absl::StrCat(
            path, " is cut short: its header promises ", wanted,
            " bytes, it holds ", header->fields.vox_offset + *got));
      }
    }
  }
  return GridOf(path, *header);
}

absl::Status WriteImage(const std::string& path, const at::Tensor& voxels,
                        const Volume& reference) {
  return CatchTorch([&]() -> absl::Status {
    MIR_ASSIGN_OR_RETURN(const at::Tensor image,
                         Squeezed(path, voxels, reference.grid.size));
    if (!image.is_floating_point()) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": wanted floating voxels, got ",
                       c10::toString(image.scalar_type())));
    }
    return WriteFile<float>(path,
                            HeaderFor(reference.grid, reference.header.get()),
                            DT_FLOAT32, InFileOrder(image, at::kFloat));
  });
}

absl::Status WriteLabels(const std::string& path, const at::Tensor& voxels,
                         const Volume& reference) {
  return CatchTorch([&]() -> absl::Status {
    MIR_ASSIGN_OR_RETURN(const at::Tensor labels,
                         Squeezed(path, voxels, reference.grid.size));
    if (!at::isIntegralType(labels.scalar_type(), /*includeBool=*/true)) {
      return absl::InvalidArgumentError(
          absl::StrCat(path, ": wanted integer labels, got ",
                       c10::toString(labels.scalar_type())));
    }
    const at::Tensor wide = labels.to(at::kLong);
    const int64_t low = wide.min().item<int64_t>();
    const int64_t high = wide.max().item<int64_t>();
    const NiftiHeader header =
        HeaderFor(reference.grid, reference.header.get());
    if (low >= 0 && high <= std::numeric_limits<uint8_t>::max()) {
      return WriteFile<uint8_t>(path, header, DT_UINT8,
                                InFileOrder(wide, at::kByte));
    }
    if (low >= std::numeric_limits<int16_t>::min() &&
        high <= std::numeric_limits<int16_t>::max()) {
      return WriteFile<int16_t>(path, header, DT_INT16,
                                InFileOrder(wide, at::kShort));
    }
    if (low >= std::numeric_limits<int32_t>::min() &&
        high <= std::numeric_limits<int32_t>::max()) {
      return WriteFile<int32_t>(path, header, DT_INT32,
                                InFileOrder(wide, at::kInt));
    }
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": labels ", low, " to ", high, " do not fit into 32 bits"));
  });
}

absl::Status WriteItkDisplacement(const std::string& path,
                                  const at::Tensor& displacement,
                                  const Volume& reference) {
  Affine linear = reference.grid.to_world;
  bool is_ras = true;
  if (reference.header != nullptr) {
    MIR_ASSIGN_OR_RETURN(const Affine as_itk,
                         ItkAffine(path, reference, is_ras));
    linear = as_itk;
  }
  if (is_ras) {
    for (int row = 0; row < 2; ++row) {
      for (int column = 0; column < 3; ++column) linear[row][column] *= -1;
    }
  }
  return WriteDisplacement(path, displacement, reference, linear, "");
}

absl::Status WriteVoxelDisplacement(const std::string& path,
                                    const at::Tensor& displacement,
                                    const Volume& reference) {
  return WriteDisplacement(path, displacement, reference, kIdentity,
                           kVoxelIntent);
}

}  // namespace mir::data
