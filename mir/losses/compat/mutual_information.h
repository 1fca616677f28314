#ifndef MIR_LOSSES_COMPAT_MUTUAL_INFORMATION_H_
#define MIR_LOSSES_COMPAT_MUTUAL_INFORMATION_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>

// The mutual information losses of the Python package MIR
// (github.com/junyuchen245/MIR, image_similarity/Mutual_Information.py), for
// what was tuned with them. New work wants mir::losses::MutualInformation and
// its like: these expect intensities in [0, 1] (or the range given), and add
// epsilons in places of their own.
//
// Images, precision, gradients and errors are those of MutualInformation; a
// wrong option is c10::ValueError at construction.
namespace mir::losses::compat {

// -mean of sum p log(p / (p_f p_m + 1e-6) + 1e-6), with normalised Gaussian
// windows of sigma_ratio bins about num_bin centres from minval to maxval.
// Intensities are clamped to [0, maxval]; so minval is at most 0.
class MutualInformation {
 public:
  explicit MutualInformation(double sigma_ratio = 1, double minval = 0,
                             double maxval = 1, int64_t num_bin = 32);

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;

 private:
  double sigma_ratio_, minval_, maxval_;
  int64_t num_bin_;
};

// -mean of sum p log((p + eps) / (p_f p_m + eps)), with cubic splines for the
// fixed image, cut off at the ends of the range, and hats for the moving one.
class MattesMutualInformation {
 public:
  explicit MattesMutualInformation(int64_t num_bin = 32, double minval = 0,
                                   double maxval = 1, double eps = 1e-6);

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;

 private:
  int64_t num_bin_;
  double minval_, maxval_, eps_;
};

// -mean of (H(f) + H(m)) / (H(f, m) + eps) with these windows.
class NormalizedMutualInformation {
 public:
  explicit NormalizedMutualInformation(int64_t num_bin = 32, double minval = 0,
                                       double maxval = 1, double eps = 1e-6);

  at::Tensor operator()(const at::Tensor& fixed,
                        const at::Tensor& moving) const;

 private:
  int64_t num_bin_;
  double minval_, maxval_, eps_;
};

}  // namespace mir::losses::compat

#endif  // MIR_LOSSES_COMPAT_MUTUAL_INFORMATION_H_
