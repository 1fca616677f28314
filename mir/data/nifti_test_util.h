#ifndef MIR_DATA_NIFTI_TEST_UTIL_H_
#define MIR_DATA_NIFTI_TEST_UTIL_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

namespace mir::data {

// A NIfTI file to be made by hand, by the standard's byte offsets and without
// the library that reads it.
struct RawNifti {
  int version = 1;
  bool big_endian = false;
  std::vector<int64_t> size = {2, 3, 4};
  std::vector<double> voxels;  // In the file's order; empty: 0, 1, 2, ...
  int datatype = 16;           // float32
  std::string magic;           // Empty: that of the version.
  double vox_offset = -1;      // -1: right behind the header.
  double slope = 1;
  double inter = 0;
  std::array<double, 4> pixdim = {1, 2, 2, 3};  // qfac and spacing
  int qform_code = 0;
  int sform_code = 1;
  std::array<double, 3> quatern = {0, 0, 0};
  std::array<double, 3> qoffset = {0, 0, 0};
  std::array<double, 12> srow = {2, 0, 0, -10, 0, 2, 0, -20, 0, 0, 3, -30};
  int units = 2;  // mm

  std::string Bytes() const;
};

// `bytes` compressed as one member of a gzip file.
std::string Gzip(const std::string& bytes);

// Writes `bytes` to `name` in the test's own folder; returns the path.
std::string WriteTestFile(const std::string& name, const std::string& bytes);
std::string TestPath(const std::string& name);
std::string ReadTestFile(const std::string& path);

// The number at byte `offset`, of this machine's byte order.
template <typename T>
T NumberAt(const std::string& bytes, size_t offset);

}  // namespace mir::data

#endif  // MIR_DATA_NIFTI_TEST_UTIL_H_
