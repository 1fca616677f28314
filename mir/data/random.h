#ifndef MIR_DATA_RANDOM_H_
#define MIR_DATA_RANDOM_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <initializer_list>

namespace mir::data {

// Random numbers that depend on a key alone: the same on every machine and in
// every thread, and unrelated for keys that differ in any part. SplitMix64
// (Steele, Lea and Flood, 2014). Not for cryptography.
class RandomStream {
 public:
  explicit RandomStream(std::initializer_list<uint64_t> key);

  uint64_t Next();
  double Uniform(double low = 0, double high = 1);
  int64_t Below(int64_t count);  // 0 to count - 1; count > 0.
  // Mean 0 and standard deviation 1, the sum of four uniform numbers: nearly
  // normal, and never beyond 3.5.
  float Normal();

 private:
  uint64_t state_;
};

// A random field that is smooth at the scale of `knot_spacing` voxels (at
// least 1): a cubic B-spline with random coefficients, twice continuously
// differentiable. Mean 0, standard deviation 1 over many fields.
//
//   size     one to three entries, 1 or more each
//   returns  [size...] float32
at::Tensor SmoothRandomField(at::IntArrayRef size, double knot_spacing,
                             RandomStream& random);

}  // namespace mir::data

#endif  // MIR_DATA_RANDOM_H_
