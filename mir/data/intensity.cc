#include "mir/data/intensity.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "mir/base/nearest.h"

namespace mir::data {
namespace {

// The shortest text that reads back as `value`.
std::string Exact(double value) {
  std::string text;
  double back = 0;
  for (int digits = 6; digits <= 17; ++digits) {
    text = absl::StrFormat("%.*g", digits, value);
    if (absl::SimpleAtod(text, &back) && back == value) break;
  }
  return text;
}

// The values below which the shares `low` < `high` (0 to 1) of all lie; between
// neighbours in proportion.
std::pair<double, double> Quantiles(const at::Tensor& image, double low,
                                    double high) {
  const float* const data = image.const_data_ptr<float>();
  std::vector<float> values(data, data + image.numel());
  auto begin = values.begin();
  const auto at_share = [&](double share) {
    const double position = share * (image.numel() - 1);
    const auto below = values.begin() + static_cast<int64_t>(position);
    std::nth_element(begin, below, values.end());
    begin = below;  // All before it are smaller: the next share is beyond.
    const double fraction = position - std::floor(position);
    if (fraction == 0) return static_cast<double>(*below);
    const float above = *std::min_element(below + 1, values.end());
    return *below + fraction * (above - *below);
  };
  const double at_low = at_share(low);
  return {at_low, at_share(high)};
}

}  // namespace

std::string Intensity::ToString() const {
  switch (kind) {
    case Kind::kNone:
      return "none";
    case Kind::kMinMax:
      return "minmax";
    case Kind::kPercentile:
      return absl::StrCat("percentile:", Exact(low), ",", Exact(high));
    case Kind::kWindow:
      return absl::StrCat("window:", Exact(low), ",", Exact(high));
    case Kind::kScale:
      return absl::StrCat("scale:", Exact(factor));
  }
  return "none";
}

absl::StatusOr<Intensity> ParseIntensity(absl::string_view text) {
  using Kind = Intensity::Kind;
  const auto refuse = [&](const std::string& wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("intensity \"", text, "\": wanted ", wanted));
  };
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(':', 1));
  const bool bare = !absl::StrContains(text, ':');
  std::vector<double> numbers;
  if (!bare) {
    for (const absl::string_view part : absl::StrSplit(parts.second, ',')) {
      double number;
      if (!absl::SimpleAtod(part, &number) || !std::isfinite(number)) {
        return refuse(
            absl::StrCat("numbers after the colon, got \"", part, "\""));
      }
      numbers.push_back(number);
    }
  }

  Intensity intensity;
  if (parts.first == "minmax" || parts.first == "none") {
    intensity.kind = parts.first == "none" ? Kind::kNone : Kind::kMinMax;
    if (!bare) return refuse(absl::StrCat(parts.first, " alone"));
    return intensity;
  }
  if (parts.first == "percentile" || parts.first == "window") {
    const bool window = parts.first == "window";
    intensity.kind = window ? Kind::kWindow : Kind::kPercentile;
    if (numbers.size() != 2 || !(numbers[0] < numbers[1]) ||
        (!window && (numbers[0] < 0 || numbers[1] > 100))) {
      return refuse(window ? "window:LO,HI with LO < HI, such as "
                             "window:-1000,500"
                           : "percentile:LO,HI with 0 <= LO < HI <= 100, such "
                             "as percentile:0.5,99.5");
    }
    intensity.low = numbers[0];
    intensity.high = numbers[1];
    return intensity;
  }
  if (parts.first == "scale") {
    intensity.kind = Kind::kScale;
    if (numbers.size() != 1 || numbers[0] == 0) {
      return refuse("scale:F with F not 0, such as scale:0.0039");
    }
    intensity.factor = numbers[0];
    return intensity;
  }
  return refuse(absl::StrCat(
      "minmax, percentile:LO,HI, window:LO,HI, scale:F or none",
      DidYouMean(parts.first,
                 {"minmax", "percentile", "window", "scale", "none"})));
}

at::Tensor ApplyIntensity(const at::Tensor& image, const Intensity& intensity) {
  using Kind = Intensity::Kind;
  TORCH_CHECK_VALUE(
      image.defined() && image.is_floating_point() && image.numel() > 0,
      "wanted a floating image with voxels");
  const at::Tensor values = image.to(at::kFloat).contiguous();
  double low = intensity.low, high = intensity.high;
  switch (intensity.kind) {
    case Kind::kNone:
      return values;
    case Kind::kScale:
      return values.mul(intensity.factor);
    case Kind::kWindow:
      break;
    case Kind::kMinMax:
      low = values.min().item<double>();
      high = values.max().item<double>();
      break;
    case Kind::kPercentile:
      std::tie(low, high) =
          Quantiles(values.cpu(), intensity.low / 100, intensity.high / 100);
      break;
  }
  if (!(high > low)) return values.mul(0);
  return values.sub(low).div_(high - low).clamp_(0, 1);
}

}  // namespace mir::data
