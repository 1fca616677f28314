#include "tools/precision_report/report.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "mir/base/status_macros.h"
#include "mir/geometry/jacobian.h"
#include "mir/geometry/vec_int.h"
#include "mir/geometry/warp.h"
#include "mir/geometry/warp_options.h"
#include "mir/losses/factory.h"
#include "mir/precision/autocast.h"
#include "mir/precision/precision.h"

namespace mir::tools {
namespace {

using geometry::WarpConvention;
using precision::Precision;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int kVelocitySteps = 7;

struct Result {
  at::Tensor value, gradient;  // float64
};

Result Run(const Reported& function, std::vector<at::Tensor> inputs,
           at::ScalarType dtype, Precision precision) {
  for (at::Tensor& input : inputs) input = input.detach().to(dtype);
  at::Tensor& leaf = inputs.back();
  leaf = leaf.clone().requires_grad_();
  const auto value = [&] {
    const precision::Autocast autocast(at::kCPU, precision);
    return function(inputs);
  }();
  value.sum(at::kDouble).backward();  // float16 would overflow.
  return {value.detach().to(at::kDouble),
          leaf.grad().defined() ? leaf.grad().to(at::kDouble)
                                : at::zeros_like(leaf, at::kDouble)};
}

double Error(const at::Tensor& found, const at::Tensor& exact) {
  const double difference = (found - exact).norm().item<double>();
  if (difference == 0) return 0;
  const double error = difference / exact.norm().item<double>();
  return std::isfinite(error) ? error : kInfinity;
}

template <typename Make>
absl::StatusOr<std::vector<ReportRow>> CompareNamed(
    const std::vector<std::string>& names, const Make& make,
    const std::vector<at::Tensor>& inputs) {
  std::vector<ReportRow> rows;
  for (const std::string& name : names) {
    MIR_ASSIGN_OR_RETURN(const Reported loss, make(name));
    rows.push_back(Compare(name, loss, inputs));
  }
  return rows;
}

std::string Number(double value) {
  return std::isfinite(value) ? absl::StrFormat("%.1e", value) : "inf";
}

nlohmann::ordered_json JsonNumber(double value) {
  if (!std::isfinite(value)) return nullptr;
  return value;
}

}  // namespace

ReportRow Compare(const std::string& name, const Reported& function,
                  const std::vector<at::Tensor>& inputs) {
  const Result exact = Run(function, inputs, at::kDouble, Precision::kFloat32);
  ReportRow row;
  row.name = name;
  row.exact = exact.value.sum().item<double>();
  constexpr struct {
    at::ScalarType dtype;
    Precision precision;
  } kSettings[] = {{at::kFloat, Precision::kFloat32},
                   {at::kHalf, Precision::kFloat16},
                   {at::kBFloat16, Precision::kBFloat16}};
  for (size_t i = 0; i < row.deviations.size(); ++i) {
    const Result found =
        Run(function, inputs, kSettings[i].dtype, kSettings[i].precision);
    row.deviations[i] = {found.value.sum().item<double>(),
                         Error(found.value, exact.value),
                         Error(found.gradient, exact.gradient)};
  }
  return row;
}

absl::StatusOr<std::vector<ReportRow>> CompareSimilarities(
    const std::vector<std::string>& names, const at::Tensor& fixed,
    const at::Tensor& moving) {
  const auto make = [](const std::string& name) -> absl::StatusOr<Reported> {
    MIR_ASSIGN_OR_RETURN(const losses::Similarity loss,
                         losses::MakeSimilarity(name));
    return Reported([=](const std::vector<at::Tensor>& inputs) {
      return loss(inputs[0], inputs[1]);
    });
  };
  return CompareNamed(names, make, {fixed, moving});
}

absl::StatusOr<std::vector<ReportRow>> CompareRegularizers(
    const std::vector<std::string>& names, const at::Tensor& field) {
  const auto make = [](const std::string& name) -> absl::StatusOr<Reported> {
    MIR_ASSIGN_OR_RETURN(const losses::Regularizer loss,
                         losses::MakeRegularizer(name));
    return Reported(
        [=](const std::vector<at::Tensor>& inputs) { return loss(inputs[0]); });
  };
  return CompareNamed(names, make, {field});
}

std::vector<ReportRow> CompareWarps(const at::Tensor& moving,
                                    const at::Tensor& field) {
  std::vector<ReportRow> rows;
  const auto warp = [&](const std::string& name, WarpConvention convention) {
    rows.push_back(Compare(name,
                           [=](const std::vector<at::Tensor>& inputs) {
                             return geometry::Warp(inputs[0], inputs[1],
                                                   {.convention = convention});
                           },
                           {moving, field}));
  };
  warp("warp", WarpConvention::kExact);
  warp("warp (MIR's convention)", WarpConvention::kMirCompatible);
  rows.push_back(Compare("integrated velocity",
                         [](const std::vector<at::Tensor>& inputs) {
                           return geometry::VecInt(inputs[0], kVelocitySteps,
                                                   WarpConvention::kExact);
                         },
                         {field}));
  rows.push_back(Compare("jacobian determinant",
                         [](const std::vector<at::Tensor>& inputs) {
                           return geometry::JacobianDeterminant(inputs[0]);
                         },
                         {field}));
  return rows;
}

std::string AsTable(const std::vector<ReportRow>& rows) {
  std::string table = absl::StrFormat("%-24s %13s", "", "float64");
  for (const char* precision : kReported) {
    absl::StrAppendFormat(&table, "   %-17s", precision);
  }
  absl::StrAppendFormat(&table, "\n%-24s %13s", "", "value");
  for (size_t i = 0; i < kReported.size(); ++i) {
    absl::StrAppendFormat(&table, "   %-8s %-8s", "value", "gradient");
  }
  for (const ReportRow& row : rows) {
    absl::StrAppendFormat(&table, "\n%-24s %13.6g", row.name, row.exact);
    for (const Deviation& one : row.deviations) {
      absl::StrAppendFormat(&table, "   %-8s %-8s", Number(one.value_error),
                            Number(one.gradient_error));
    }
  }
  return table + "\n";
}

nlohmann::ordered_json AsJson(const std::vector<ReportRow>& rows) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const ReportRow& row : rows) {
    nlohmann::ordered_json one = {{"name", row.name},
                                  {"value", JsonNumber(row.exact)}};
    for (size_t i = 0; i < kReported.size(); ++i) {
      const Deviation& found = row.deviations[i];
      one[kReported[i]] = {
          {"value", JsonNumber(found.value)},
          {"value_error", JsonNumber(found.value_error)},
          {"gradient_error", JsonNumber(found.gradient_error)}};
    }
    all.push_back(one);
  }
  return all;
}

}  // namespace mir::tools
