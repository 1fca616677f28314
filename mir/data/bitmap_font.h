#ifndef MIR_DATA_BITMAP_FONT_H_
#define MIR_DATA_BITMAP_FONT_H_

#include <array>
#include <cstdint>

namespace mir::data {

constexpr int kGlyphWidth = 5;
constexpr int kGlyphHeight = 7;

// The rows of a character from the top, the leftmost pixel in bit 4. Small
// letters look like capital ones; a box stands for what is missing.
const std::array<uint8_t, kGlyphHeight>& GlyphOf(char character);

}  // namespace mir::data

#endif  // MIR_DATA_BITMAP_FONT_H_
