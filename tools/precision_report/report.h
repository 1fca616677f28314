#ifndef MIR_TOOLS_PRECISION_REPORT_REPORT_H_
#define MIR_TOOLS_PRECISION_REPORT_REPORT_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace mir::tools {

// What 16 bits do to one function, against float64.
struct Deviation {
  double value = 0;           // The sum of the results; of a loss, itself.
  double value_error = 0;     // |results - exact ones| / |exact ones|, as L2.
  double gradient_error = 0;  // Likewise of the gradient of the sum.
};

// float32, float16 and bfloat16, by the names of precision::PrecisionName.
constexpr std::array<const char*, 3> kReported = {"fp32", "fp16", "bf16"};

struct ReportRow {
  std::string name;
  double exact = 0;                     // The sum of the results in float64.
  std::array<Deviation, 3> deviations;  // In the order of kReported.
};

// A function that computes in the dtype of its inputs or wider.
using Reported =
    std::function<at::Tensor(const std::vector<at::Tensor>& inputs)>;

// Runs `function` on the inputs (float64) and on what fp32, fp16 and bf16 make
// of them: rounded to that dtype, under its autocast. The gradient is the one
// to the last input. An error is infinite where a result is not finite, and 0
// where both are 0.
ReportRow Compare(const std::string& name, const Reported& function,
                  const std::vector<at::Tensor>& inputs);

// The similarity losses of `names` (mir/losses/factory.h) of two images
// [1, 1, D, H, W], with the gradient to the moving one; the regularizers of a
// field [1, 3, D, H, W] in voxels; and what moves images: both warps, the
// integration of the field as a velocity, its Jacobian determinant, with the
// gradient to the field.
//
// INVALID_ARGUMENT for a name that is not known.
absl::StatusOr<std::vector<ReportRow>> CompareSimilarities(
    const std::vector<std::string>& names, const at::Tensor& fixed,
    const at::Tensor& moving);
absl::StatusOr<std::vector<ReportRow>> CompareRegularizers(
    const std::vector<std::string>& names, const at::Tensor& field);
std::vector<ReportRow> CompareWarps(const at::Tensor& moving,
                                    const at::Tensor& field);

// The rows as a table for people, and as JSON (null for what is no number).
std::string AsTable(const std::vector<ReportRow>& rows);
nlohmann::ordered_json AsJson(const std::vector<ReportRow>& rows);

}  // namespace mir::tools

#endif  // MIR_TOOLS_PRECISION_REPORT_REPORT_H_
