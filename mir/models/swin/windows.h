#ifndef MIR_MODELS_SWIN_WINDOWS_H_
#define MIR_MODELS_SWIN_WINDOWS_H_

#include <ATen/core/Tensor.h>

#include <array>

// Windows of tokens, in which Swin transformers attend (Liu et al., "Swin
// Transformer: Hierarchical Vision Transformer using Shifted Windows", ICCV
// 2021; in 3-D as in TransMorph). Features are [N, D, H, W, C].
//
// Where a size is no multiple of the window's, zeros are appended at the end of
// the axis, and take part in the attention, as in MIR.
namespace mir::models {

using Size3 = std::array<int64_t, 3>;

// The sizes (of axes 1 to 3) with what is appended to fill whole windows.
Size3 WholeWindows(const at::Tensor& features, const Size3& window);

// `features` with zeros appended up to whole windows, and rolled towards the
// origin by `shift`.
at::Tensor PadAndShift(const at::Tensor& features, const Size3& window,
                       const Size3& shift);

// Cuts features whose sizes are multiples of the window's into windows
// [N * windows, tokens of a window, C], in row-major order both ways.
at::Tensor CutIntoWindows(const at::Tensor& features, const Size3& window);

// The inverse of PadAndShift and CutIntoWindows: [N, sizes..., C].
at::Tensor JoinWindows(const at::Tensor& windows, const Size3& sizes,
                       const Size3& window, const Size3& shift);

// What is added to the attention in shifted windows of a volume of these whole
// sizes: 0 between tokens that were neighbours before the shift, else -100.
// float32 [windows, tokens, tokens] on `device`.
at::Tensor ShiftMask(const Size3& whole, const Size3& window,
                     const Size3& shift, at::Device device);

// For each pair of tokens of a window, the row of the bias table that their
// relative position has: int64 [tokens, tokens].
at::Tensor RelativePositionIndex(const Size3& window);

// Rows of that table: (2 d - 1) (2 h - 1) (2 w - 1).
int64_t RelativePositions(const Size3& window);

}  // namespace mir::models

#endif  // MIR_MODELS_SWIN_WINDOWS_H_
