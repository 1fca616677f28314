#include "mir/data/summary_picture.h"

#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_format.h"
#include "mir/base/catch_torch.h"
#include "mir/data/picture.h"

namespace mir::data {
namespace {

constexpr Color kBackground = {16, 18, 22};
constexpr Color kTitle = {230, 233, 238};
constexpr int64_t kGap = 12;
constexpr int64_t kTitleHeight = 26;
constexpr int64_t kCurveHeight = 260;

// The middle slice of the first pair: [C, X, Y].
at::Tensor Slice(const at::Tensor& batch) {
  at::Tensor slice = batch[0].detach().to(at::kCPU, at::kFloat);
  if (slice.dim() == 4) slice = slice.select(-1, slice.size(-1) / 2);
  return slice;
}

struct Panel {
  std::string title;
  Picture picture;
};

void Draw(const Panel& panel, int64_t x, int64_t y, Picture& page) {
  page.DrawText(x, y + 4, panel.title, kTitle);
  page.Paste(panel.picture, x, y + kTitleHeight);
}

absl::Status Write(const std::string& path, const at::Tensor& fixed,
                   const at::Tensor& moving, const at::Tensor& warped,
                   const at::Tensor& displacement,
                   const std::vector<double>* losses) {
  TORCH_CHECK_VALUE(
      (fixed.dim() == 4 || fixed.dim() == 5) && fixed.numel() > 0 &&
          moving.sizes() == fixed.sizes() && warped.sizes() == fixed.sizes(),
      "wanted three images [N, C, ...] of equal shape, got ", fixed.sizes(),
      ", ", moving.sizes(), " and ", warped.sizes());
  TORCH_CHECK_VALUE(displacement.dim() == fixed.dim() &&
                        displacement.size(0) == fixed.size(0) &&
                        displacement.size(1) == fixed.dim() - 2 &&
                        displacement.sizes().slice(2) == fixed.sizes().slice(2),
                    "wanted a displacement for images ", fixed.sizes(),
                    ", got ", displacement.sizes());
  const at::Tensor f = Slice(fixed)[0], m = Slice(moving)[0],
                   w = Slice(warped)[0];
  const at::Tensor shift = Slice(displacement).narrow(0, 0, 2);
  const double low = std::min(f.min().item<double>(), m.min().item<double>());
  const double high = std::max(f.max().item<double>(), m.max().item<double>());
  const at::Tensor before = f - m, after = f - w;
  // A few large values must not hide the others.
  const double largest = 0.6 * (high - low);

  // Panels as large as the slice, but neither tiny nor huge.
  const int64_t longest = std::max(f.size(0), f.size(1));
  const double zoom = std::clamp<double>(longest, 288, 480) / longest;
  const int64_t width = std::max<int64_t>(1, std::lround(zoom * f.size(0)));
  const int64_t height = std::max<int64_t>(1, std::lround(zoom * f.size(1)));
  const auto gray = [&](const at::Tensor& slice) {
    return GrayPicture(slice, low, high, width, height);
  };
  const auto difference = [&](const char* name, const at::Tensor& slice) {
    return Panel{
        absl::StrFormat("%s %.3g", name, slice.abs().mean().item<double>()),
        DifferencePicture(slice, largest, width, height)};
  };
  const std::vector<Panel> panels = {
      {"fixed", gray(f)},
      {"moving", gray(m)},
      {"warped", gray(w)},
      difference("diff before", before),
      difference("diff after", after),
      {"deformed grid", GridPicture(shift, 24, width, height)},
  };

  // Room for the longest title over a narrow panel.
  const int64_t cell =
      std::max<int64_t>(width, Picture::TextWidth("diff before 0.0123"));
  const int64_t page_width = 3 * (cell + kGap) + kGap;
  const int64_t row = kTitleHeight + height + kGap;
  const int64_t curve_row =
      losses == nullptr ? 0 : kTitleHeight + kCurveHeight + kGap;
  Picture page(page_width, kGap + 2 * row + curve_row, kBackground);
  for (size_t at = 0; at < panels.size(); ++at) {
    const int64_t column = static_cast<int64_t>(at % 3);
    Draw(panels[at], kGap + column * (cell + kGap),
         kGap + static_cast<int64_t>(at / 3) * row, page);
  }
  if (losses != nullptr) {
    Draw({"loss", CurvePicture(*losses, page_width - 2 * kGap, kCurveHeight)},
         kGap, kGap + 2 * row, page);
  }
  return WritePng(path, page);
}

}  // namespace

absl::Status WriteRegistrationPicture(const std::string& path,
                                      const at::Tensor& fixed,
                                      const at::Tensor& moving,
                                      const at::Tensor& warped,
                                      const at::Tensor& displacement) {
  return CatchTorch([&] {
    return Write(path, fixed, moving, warped, displacement, nullptr);
  });
}

absl::Status WriteSummaryPicture(const std::string& path,
                                 const at::Tensor& fixed,
                                 const at::Tensor& moving,
                                 const at::Tensor& warped,
                                 const at::Tensor& displacement,
                                 const std::vector<double>& losses) {
  return CatchTorch([&] {
    return Write(path, fixed, moving, warped, displacement, &losses);
  });
}

}  // namespace mir::data
