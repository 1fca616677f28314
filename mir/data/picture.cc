#include "mir/data/picture.h"

#include <ATen/core/Tensor.h>
#include <c10/util/Exception.h>
#include <png.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "mir/data/bitmap_font.h"

namespace mir::data {
namespace {

constexpr Color kBackground = {16, 18, 22};
constexpr Color kFaint = {58, 64, 74};
constexpr Color kLabel = {170, 176, 186};
constexpr Color kLine = {94, 196, 255};
constexpr Color kOrange = {255, 150, 40};
constexpr Color kBlue = {60, 150, 255};

uint8_t Mixed(uint8_t from, uint8_t to, double share) {
  return static_cast<uint8_t>(std::lround(from + (to - from) * share));
}

Color Mixed(Color from, Color to, double share) {
  return {Mixed(from.red, to.red, share), Mixed(from.green, to.green, share),
          Mixed(from.blue, to.blue, share)};
}

// Draws a slice with `color_of` its values.
template <typename ColorOf>
Picture SlicePicture(const at::Tensor& slice, int64_t width, int64_t height,
                     const ColorOf& color_of) {
  TORCH_CHECK_VALUE(
      slice.dim() == 2 && slice.is_floating_point() && slice.numel() > 0,
      "wanted a floating slice [X, Y], got ", slice.sizes());
  const at::Tensor values =
      slice.detach().to(at::kCPU, at::kFloat).contiguous();
  const auto at = values.accessor<float, 2>();
  const int64_t columns = values.size(0), rows = values.size(1);
  Picture picture(width, height);
  for (int64_t y = 0; y < height; ++y) {
    // Pixels and voxels fill the same square.
    const double v =
        std::clamp((height - y - 0.5) * rows / height - 0.5, 0.0, rows - 1.0);
    const int64_t low_v = static_cast<int64_t>(v);
    const int64_t high_v = std::min(low_v + 1, rows - 1);
    for (int64_t x = 0; x < width; ++x) {
      const double u =
          std::clamp((x + 0.5) * columns / width - 0.5, 0.0, columns - 1.0);
      const int64_t low_u = static_cast<int64_t>(u);
      const int64_t high_u = std::min(low_u + 1, columns - 1);
      const double below = at[low_u][low_v] +
                           (u - low_u) * (at[high_u][low_v] - at[low_u][low_v]);
      const double above =
          at[low_u][high_v] +
          (u - low_u) * (at[high_u][high_v] - at[low_u][high_v]);
      picture.Blend(x, y, color_of(below + (v - low_v) * (above - below)));
    }
  }
  return picture;
}

// The mean of up to `window` values that end at each.
std::vector<double> RunningMean(const std::vector<double>& values,
                                size_t window) {
  std::vector<double> means;
  for (size_t end = 1; end <= values.size(); ++end) {
    double sum = 0;
    int64_t count = 0;
    for (size_t at = end > window ? end - window : 0; at < end; ++at) {
      if (!std::isfinite(values[at])) continue;
      sum += values[at];
      ++count;
    }
    means.push_back(count > 0 ? sum / count
                              : std::numeric_limits<double>::quiet_NaN());
  }
  return means;
}

// A step of 1, 2 or 5 times a power of ten that cuts `range` into about five.
double TickStep(double range) {
  const double rough = range / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double factor : {1, 2, 5}) {
    if (factor * power >= rough) return factor * power;
  }
  return 10 * power;
}

}  // namespace

Picture::Picture(int64_t width, int64_t height, Color background)
    : width_(width), height_(height), pixels_(width * height, background) {
  TORCH_CHECK_VALUE(width >= 1 && height >= 1,
                    "wanted a picture with pixels, got ", width, "x", height);
}

void Picture::Blend(int64_t x, int64_t y, Color color, double share) {
  if (x < 0 || y < 0 || x >= width_ || y >= height_) return;
  Color& pixel = pixels_[y * width_ + x];
  pixel = Mixed(pixel, color, std::clamp(share, 0.0, 1.0));
}

void Picture::FillRectangle(int64_t x, int64_t y, int64_t width, int64_t height,
                            Color color) {
  for (int64_t row = y; row < y + height; ++row) {
    for (int64_t column = x; column < x + width; ++column) {
      Blend(column, row, color);
    }
  }
}

void Picture::DrawLine(double x0, double y0, double x1, double y1, Color color,
                       double thickness) {
  const double reach = thickness / 2 + 1;
  // What lies far outside need not be walked over.
  const auto clip = [reach](double value, int64_t size) {
    return static_cast<int64_t>(
        std::floor(std::clamp(value, -reach, size + reach)));
  };
  const int64_t left = clip(std::min(x0, x1) - reach, width_);
  const int64_t right = clip(std::max(x0, x1) + reach + 1, width_);
  const int64_t top = clip(std::min(y0, y1) - reach, height_);
  const int64_t bottom = clip(std::max(y0, y1) + reach + 1, height_);
  const double dx = x1 - x0, dy = y1 - y0;
  const double length_squared = dx * dx + dy * dy;
  for (int64_t y = top; y <= bottom; ++y) {
    for (int64_t x = left; x <= right; ++x) {
      const double along =
          length_squared > 0
              ? std::clamp(((x - x0) * dx + (y - y0) * dy) / length_squared,
                           0.0, 1.0)
              : 0;
      const double distance =
          std::hypot(x - x0 - along * dx, y - y0 - along * dy);
      const double share = thickness / 2 + 0.5 - distance;
      if (share > 0) Blend(x, y, color, share);
    }
  }
}

void Picture::DrawText(int64_t x, int64_t y, absl::string_view text,
                       Color color, int64_t scale) {
  for (const char character : text) {
    const auto& rows = GlyphOf(character);
    for (int row = 0; row < kGlyphHeight; ++row) {
      for (int column = 0; column < kGlyphWidth; ++column) {
        if (rows[row] >> (kGlyphWidth - 1 - column) & 1) {
          FillRectangle(x + column * scale, y + row * scale, scale, scale,
                        color);
        }
      }
    }
    x += (kGlyphWidth + 1) * scale;
  }
}

void Picture::Paste(const Picture& other, int64_t x, int64_t y) {
  for (int64_t row = 0; row < other.height(); ++row) {
    for (int64_t column = 0; column < other.width(); ++column) {
      Blend(x + column, y + row, other.At(column, row));
    }
  }
}

int64_t Picture::TextWidth(absl::string_view text, int64_t scale) {
  return static_cast<int64_t>(text.size()) * (kGlyphWidth + 1) * scale - scale;
}

Picture GrayPicture(const at::Tensor& slice, double low, double high,
                    int64_t width, int64_t height) {
  const double range = high > low ? high - low : 1;
  return SlicePicture(slice, width, height, [&](double value) {
    const double share = std::clamp((value - low) / range, 0.0, 1.0);
    const uint8_t gray = static_cast<uint8_t>(std::lround(255 * share));
    return Color{gray, gray, gray};
  });
}

Picture DifferencePicture(const at::Tensor& slice, double largest,
                          int64_t width, int64_t height) {
  const double range = largest > 0 ? largest : 1;
  return SlicePicture(slice, width, height, [&](double value) {
    const double share = std::clamp(std::abs(value) / range, 0.0, 1.0);
    return Mixed(Color{}, value > 0 ? kOrange : kBlue, share);
  });
}

Picture GridPicture(const at::Tensor& displacement, int64_t lines,
                    int64_t width, int64_t height) {
  TORCH_CHECK_VALUE(
      displacement.dim() == 3 && displacement.size(0) == 2 &&
          displacement.is_floating_point() && displacement.numel() > 0,
      "wanted a floating displacement [2, X, Y], got ", displacement.sizes());
  const at::Tensor values =
      displacement.detach().to(at::kCPU, at::kFloat).contiguous();
  const auto at = values.accessor<float, 3>();
  const int64_t sizes[2] = {values.size(1), values.size(2)};
  const int64_t step = std::max<int64_t>(
      1, std::lround(static_cast<double>(std::max(sizes[0], sizes[1])) /
                     std::max<int64_t>(1, lines)));
  Picture picture(width, height, kBackground);
  const auto x_of = [&](int64_t i, int64_t j) {
    return (i + at[0][i][j] + 0.5) * width / sizes[0] - 0.5;
  };
  const auto y_of = [&](int64_t i, int64_t j) {
    return height - (j + at[1][i][j] + 0.5) * height / sizes[1] - 0.5;
  };
  for (int64_t i = (sizes[0] - 1) % step / 2; i < sizes[0]; i += step) {
    for (int64_t j = 0; j + 1 < sizes[1]; ++j) {
      picture.DrawLine(x_of(i, j), y_of(i, j), x_of(i, j + 1), y_of(i, j + 1),
                       kLine);
    }
  }
  for (int64_t j = (sizes[1] - 1) % step / 2; j < sizes[1]; j += step) {
    for (int64_t i = 0; i + 1 < sizes[0]; ++i) {
      picture.DrawLine(x_of(i, j), y_of(i, j), x_of(i + 1, j), y_of(i + 1, j),
                       kLine);
    }
  }
  return picture;
}

Picture CurvePicture(const std::vector<double>& values, int64_t width,
                     int64_t height) {
  Picture picture(width, height, kBackground);
  double low = std::numeric_limits<double>::infinity(), high = -low;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    low = std::min(low, value);
    high = std::max(high, value);
  }
  if (!(low <= high)) {
    picture.DrawText(10, 10, "no values", kLabel);
    return picture;
  }
  if (low == high) {
    low -= 0.5;
    high += 0.5;
  }
  const double margin = 0.05 * (high - low);
  low -= margin;
  high += margin;

  constexpr int64_t kLeft = 84, kRight = 16, kTop = 12, kBottom = 30;
  const double last = std::max<double>(2, values.size());
  const auto x_of = [&](double step) {
    return kLeft + (step - 1) / (last - 1) * (width - kLeft - kRight);
  };
  const auto y_of = [&](double value) {
    return kTop + (high - value) / (high - low) * (height - kTop - kBottom);
  };
  const double value_step = TickStep(high - low);
  for (double tick = std::ceil(low / value_step) * value_step; tick <= high;
       tick += value_step) {
    if (std::abs(tick) < 1e-9 * value_step) tick = 0;
    picture.DrawLine(kLeft, y_of(tick), width - kRight, y_of(tick), kFaint);
    const std::string label = absl::StrFormat("%.4g", tick);
    picture.DrawText(kLeft - 8 - Picture::TextWidth(label),
                     std::lround(y_of(tick)) - 7, label, kLabel);
  }
  const double step_step = std::max(1.0, TickStep(last));
  for (double tick = step_step; tick <= last; tick += step_step) {
    picture.DrawLine(x_of(tick), kTop, x_of(tick), height - kBottom, kFaint);
    const std::string label = absl::StrFormat("%.6g", tick);
    const int64_t label_width = Picture::TextWidth(label);
    picture.DrawText(
        std::min<int64_t>(std::lround(x_of(tick)) - label_width / 2,
                          width - label_width - 2),
        height - kBottom + 10, label, kLabel);
  }

  const auto draw = [&](const std::vector<double>& curve, Color color,
                        double thickness) {
    for (size_t at = 0; at < curve.size(); ++at) {
      if (!std::isfinite(curve[at])) continue;
      const double x = x_of(at + 1.0), y = y_of(curve[at]);
      const bool joined = at > 0 && std::isfinite(curve[at - 1]);
      picture.DrawLine(joined ? x_of(at) : x, joined ? y_of(curve[at - 1]) : y,
                       x, y, color, thickness);
    }
  };
  draw(values, Mixed(kBackground, kLine, 0.4), 1);
  draw(RunningMean(values, std::max<size_t>(1, values.size() / 25)), kLine, 2);
  return picture;
}

absl::Status WritePng(const std::string& path, const Picture& picture) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  png_image image = {};
  image.version = PNG_IMAGE_VERSION;
  image.width = static_cast<png_uint_32>(picture.width());
  image.height = static_cast<png_uint_32>(picture.height());
  image.format = PNG_FORMAT_RGB;
  errno = 0;
  if (png_image_write_to_file(&image, temporary.c_str(), /*convert_to_8bit=*/0,
                              picture.data(), /*row_stride=*/0,
                              /*colormap=*/nullptr) == 0) {
    const int reason = errno == 0 ? EIO : errno;
    unlink(temporary.c_str());
    return absl::ErrnoToStatus(reason, absl::StrCat("cannot write ", path));
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    const int reason = errno;
    unlink(temporary.c_str());
    return absl::ErrnoToStatus(reason, absl::StrCat("cannot write ", path));
  }
  return absl::OkStatus();
}

}  // namespace mir::data
