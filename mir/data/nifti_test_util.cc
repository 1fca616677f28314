#include "mir/data/nifti_test_util.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>

namespace mir::data {
namespace {

template <typename T>
std::string Number(double value, bool big_endian) {
  const T number = static_cast<T>(value);
  std::string bytes(reinterpret_cast<const char*>(&number), sizeof(T));
  if (big_endian) std::reverse(bytes.begin(), bytes.end());
  return bytes;
}

std::string Voxel(double value, int datatype, bool big_endian) {
  switch (datatype) {
    case 2:
      return Number<uint8_t>(value, big_endian);
    case 4:
      return Number<int16_t>(value, big_endian);
    case 8:
      return Number<int32_t>(value, big_endian);
    case 64:
      return Number<double>(value, big_endian);
    case 256:
      return Number<int8_t>(value, big_endian);
    case 512:
      return Number<uint16_t>(value, big_endian);
    case 768:
      return Number<uint32_t>(value, big_endian);
    case 1024:
      return Number<int64_t>(value, big_endian);
    case 1280:
      return Number<uint64_t>(value, big_endian);
    default:
      return Number<float>(value, big_endian);
  }
}

}  // namespace

std::string RawNifti::Bytes() const {
  const bool one = version == 1;
  std::string bytes(one ? 352 : 544, '\0');
  const auto put = [&](size_t offset, const std::string& what) {
    bytes.replace(offset, what.size(), what);
  };
  // A field that is `Narrow` in version 1 and `Wide` in version 2.
  const auto field = [&](size_t at_one, size_t at_two, double value,
                         auto narrow, auto wide) {
    put(one ? at_one : at_two, one ? Number<decltype(narrow)>(value, big_endian)
                                   : Number<decltype(wide)>(value, big_endian));
  };
  put(0, Number<int32_t>(one ? 348 : 540, big_endian));
  for (size_t axis = 0; axis <= size.size(); ++axis) {
    field(40 + 2 * axis, 16 + 8 * axis,
          axis == 0 ? size.size() : size[axis - 1], int16_t{}, int64_t{});
  }
  const size_t voxel_bytes = Voxel(0, datatype, false).size();
  field(70, 12, datatype, int16_t{}, int16_t{});
  field(72, 14, 8.0 * voxel_bytes, int16_t{}, int16_t{});
  for (size_t axis = 0; axis < 4; ++axis) {
    field(76 + 4 * axis, 104 + 8 * axis, pixdim[axis], float{}, double{});
  }
  const double offset = vox_offset < 0 ? bytes.size() : vox_offset;
  field(108, 168, offset, float{}, int64_t{});
  field(112, 176, slope, float{}, double{});
  field(116, 184, inter, float{}, double{});
  field(123, 500, units, int8_t{}, int32_t{});
  put(one ? 148 : 240, "made by hand");
  field(252, 344, qform_code, int16_t{}, int32_t{});
  field(254, 348, sform_code, int16_t{}, int32_t{});
  for (size_t i = 0; i < 3; ++i) {
    field(256 + 4 * i, 352 + 8 * i, quatern[i], float{}, double{});
    field(268 + 4 * i, 376 + 8 * i, qoffset[i], float{}, double{});
  }
  for (size_t i = 0; i < 12; ++i) {
    field(280 + 4 * i, 400 + 8 * i, srow[i], float{}, double{});
  }
  const std::string right =
      one ? std::string("n+1\0", 4) : std::string("n+2\0\r\n\032\n", 8);
  put(one ? 344 : 4, magic.empty() ? right : magic);

  if (offset > bytes.size()) bytes.resize(static_cast<size_t>(offset), 'x');
  const int64_t count = std::accumulate(size.begin(), size.end(), int64_t{1},
                                        std::multiplies<>());
  for (int64_t at = 0; at < count; ++at) {
    bytes += Voxel(voxels.empty() ? at : voxels[at], datatype, big_endian);
  }
  return bytes;
}

std::string Gzip(const std::string& bytes) {
  z_stream stream = {};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, 0), Z_OK);
  std::string result(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(&result[0]);
  stream.avail_out = static_cast<uInt>(result.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  result.resize(stream.total_out);
  deflateEnd(&stream);
  return result;
}

std::string TestPath(const std::string& name) {
  return (std::filesystem::path(::testing::TempDir()) / name).string();
}

std::string WriteTestFile(const std::string& name, const std::string& bytes) {
  const std::string path = TestPath(name);
  // Some file systems wait for the disk where a file is overwritten.
  std::filesystem::remove(path);
  std::ofstream(path, std::ios::binary) << bytes;
  return path;
}

std::string ReadTestFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

template <typename T>
T NumberAt(const std::string& bytes, size_t offset) {
  T number = {};
  EXPECT_LE(offset + sizeof(T), bytes.size());
  if (offset + sizeof(T) <= bytes.size()) {
    std::memcpy(&number, bytes.data() + offset, sizeof(T));
  }
  return number;
}

template uint8_t NumberAt(const std::string&, size_t);
template int16_t NumberAt(const std::string&, size_t);
template int32_t NumberAt(const std::string&, size_t);
template int64_t NumberAt(const std::string&, size_t);
template float NumberAt(const std::string&, size_t);
template double NumberAt(const std::string&, size_t);

}  // namespace mir::data
