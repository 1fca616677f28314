#ifndef MIR_DATA_PICTURE_H_
#define MIR_DATA_PICTURE_H_

#include <ATen/core/ATen_fwd.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace mir::data {

struct Color {
  uint8_t red = 0;
  uint8_t green = 0;
  uint8_t blue = 0;

  friend bool operator==(const Color& a, const Color& b) {
    return a.red == b.red && a.green == b.green && a.blue == b.blue;
  }
};

// An RGB picture to draw on. (0, 0) is the corner at the top left, x runs to
// the right and y down; what lies outside is not drawn.
class Picture {
 public:
  // Both sizes 1 or more.
  Picture(int64_t width, int64_t height, Color background = {});

  int64_t width() const { return width_; }
  int64_t height() const { return height_; }
  Color At(int64_t x, int64_t y) const { return pixels_[y * width_ + x]; }
  const Color* data() const { return pixels_.data(); }

  // Mixes `color` into a pixel, `share` of it (0 to 1).
  void Blend(int64_t x, int64_t y, Color color, double share = 1);
  void FillRectangle(int64_t x, int64_t y, int64_t width, int64_t height,
                     Color color);
  // A line between points, with smooth edges; pixel centres are at whole
  // numbers.
  void DrawLine(double x0, double y0, double x1, double y1, Color color,
                double thickness = 1);
  // Capital letters, digits and common signs (others show as a box), each 6
  // `scale` wide and 7 high, from the top left.
  void DrawText(int64_t x, int64_t y, absl::string_view text, Color color,
                int64_t scale = 2);
  void Paste(const Picture& other, int64_t x, int64_t y);

  static int64_t TextWidth(absl::string_view text, int64_t scale = 2);
  static int64_t TextHeight(int64_t scale = 2) { return 7 * scale; }

 private:
  int64_t width_;
  int64_t height_;
  std::vector<Color> pixels_;
};

// The functions below take a slice [X, Y] of a volume (floating) and draw its
// first axis to the right and its second up, as an axial slice of a RAS volume
// is looked at; neighbours are mixed where it is enlarged.

// Values from `low` (black) to `high` (white).
Picture GrayPicture(const at::Tensor& slice, double low, double high,
                    int64_t width, int64_t height);

// Black at 0, orange towards `largest`, blue towards -`largest`.
Picture DifferencePicture(const at::Tensor& slice, double largest,
                          int64_t width, int64_t height);

// The lines of a grid, about `lines` along the longer side, displaced by
// `displacement` [2, X, Y] in voxels.
Picture GridPicture(const at::Tensor& displacement, int64_t lines,
                    int64_t width, int64_t height);

// `values` over 1, 2, 3, ...: faint as they are, and bold as their running
// mean. Axes are labelled; values that are not finite leave a gap.
Picture CurvePicture(const std::vector<double>& values, int64_t width,
                     int64_t height);

// Writes a PNG under a temporary name and renames it. The system's reason where
// it cannot be written.
absl::Status WritePng(const std::string& path, const Picture& picture);

}  // namespace mir::data

#endif  // MIR_DATA_PICTURE_H_
