#ifndef MIR_LOSSES_COMPAT_NCC_H_
#define MIR_LOSSES_COMPAT_NCC_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <vector>

// The local cross-correlations of the Python package MIR
// (github.com/junyuchen245/MIR, image_similarity/NCC.py), for what was tuned
// with them. New work wants LocalNcc: these read zeros beyond the volume's
// border, so that constant images correlate there, and their epsilons depend on
// the intensity scale.
//
// All take images as LocalNcc does, with any number of channels, each compared
// with its own; sum in float64 under any autocast; return float32 (float64
// where an image is float64); and are differentiable in both images, once on
// the CPU. Windows are odd. Below, S is the sum over a window, n its number of
// voxels, mean = S / n. Errors are those of LocalNcc; a wrong option is
// c10::ValueError at construction.
namespace mir::losses::compat {

// -mean(cov^2 / (var_f var_m + 1e-5)) with cov = S(fm) - S(f) S(m) / n, var
// alike: not divided by n.
class NccVxm {
 public:
  // The window along each spatial axis; empty: 9 along each.
  explicit NccVxm(std::vector<int64_t> window = {});

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;

 private:
  std::vector<int64_t> window_;
};

// As NccVxm, with a cubic window and an epsilon. MIR's NCC_mok2 is the same for
// more than one channel.
class NccMok {
 public:
  explicit NccMok(int64_t window = 9, double epsilon = 1e-5);

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;

 private:
  int64_t window_;
  double epsilon_;
};

// As NccVxm with cov = mean(fm) - mean(f) mean(m), var alike.
class Ncc {
 public:
  explicit Ncc(int64_t window = 9);

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;

 private:
  int64_t window_;
};

// As Ncc where `squared`, otherwise -mean(cov / sqrt(var_f var_m + epsilon)).
class NccFp16 {
 public:
  explicit NccFp16(int64_t window = 9, bool squared = true,
                   double epsilon = 1e-5);

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;

 private:
  int64_t window_;
  bool squared_;
  double epsilon_;
};

// As Ncc with a Gaussian window, of weights that add up to 1.
class NccGauss {
 public:
  explicit NccGauss(int64_t window = 9, double sigma = 2);

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;

 private:
  int64_t window_;
  double sigma_;
};

// As NccVxm, but with `window` (9), not its number of voxels (729), for n: not
// a correlation, and not in [-1, 0].
class FastNcc {
 public:
  explicit FastNcc(int64_t window = 9);

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;

 private:
  int64_t window_;
};

struct NccVfaOptions {
  int64_t window = 9;            // Of the finest scale.
  int64_t scales = 1;            // Each with a window smaller by two.
  int64_t kernel = 3;            // Of the pooling between scales; odd.
  bool half_resolution = false;  // Halve both images first.
};

// The mean over scales of -mean(cov^2 / max(var_f var_m, 2^-23)), cov and var
// as in Ncc, on images that are halved from scale to scale.
class NccVfa {
 public:
  explicit NccVfa(const NccVfaOptions& options = {});

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;

 private:
  NccVfaOptions options_;
};

}  // namespace mir::losses::compat

#endif  // MIR_LOSSES_COMPAT_NCC_H_
