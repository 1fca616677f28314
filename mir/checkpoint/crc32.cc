#include "mir/checkpoint/crc32.h"

#include <array>
#include <cstring>

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace mir::checkpoint {
namespace {

constexpr uint32_t kPolynomial = 0xedb88320;  // Reflected: x^31 is bit 0.

// kTables[k][b] is the register after byte b and k zero bytes, from zero.
constexpr std::array<std::array<uint32_t, 256>, 8> MakeTables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = value >> 1 ^ (value & 1 ? kPolynomial : 0);
    }
    tables[0][byte] = value;
  }
  for (int k = 1; k < 8; ++k) {
    for (int byte = 0; byte < 256; ++byte) {
      const uint32_t before = tables[k - 1][byte];
      tables[k][byte] = before >> 8 ^ tables[0][before & 0xff];
    }
  }
  return tables;
}
constexpr std::array<std::array<uint32_t, 256>, 8> kTables = MakeTables();

// Advances the register (not inverted) over `size` bytes.
uint32_t Advance(const unsigned char* bytes, size_t size, uint32_t value) {
  for (; size >= 8; size -= 8, bytes += 8) {
    uint32_t low = 0;
    uint32_t high = 0;
    std::memcpy(&low, bytes, 4);
    std::memcpy(&high, bytes + 4, 4);
    low ^= value;
    value = kTables[7][low & 0xff] ^ kTables[6][low >> 8 & 0xff] ^
            kTables[5][low >> 16 & 0xff] ^ kTables[4][low >> 24] ^
            kTables[3][high & 0xff] ^ kTables[2][high >> 8 & 0xff] ^
            kTables[1][high >> 16 & 0xff] ^ kTables[0][high >> 24];
  }
  for (; size > 0; --size, ++bytes) {
    value = value >> 8 ^ kTables[0][(value ^ *bytes) & 0xff];
  }
  return value;
}

#ifdef __x86_64__

// x^power modulo the polynomial, reflected, shifted to where a carry-less
// product of reflected factors needs it.
constexpr uint64_t PowerOfX(int power) {
  uint32_t value = 0x80000000;  // x^0
  for (int i = 0; i < power; ++i) {
    value = value >> 1 ^ (value & 1 ? kPolynomial : 0);
  }
  return static_cast<uint64_t>(value) << 1;
}

__attribute__((target("pclmul,sse4.1"))) __m128i Fold(__m128i value,
                                                      __m128i factors,
                                                      __m128i next) {
  return _mm_xor_si128(
      next, _mm_xor_si128(_mm_clmulepi64_si128(value, factors, 0x00),
                          _mm_clmulepi64_si128(value, factors, 0x11)));
}

// The same as Advance for a multiple of 16 bytes, at least 64: four 16-byte
// lanes are carried 64 bytes ahead at a time, then joined; the 16 bytes that
// remain are congruent to the whole.
__attribute__((target("pclmul,sse4.1"))) uint32_t AdvanceFolding(
    const unsigned char* bytes, size_t size, uint32_t value) {
  const auto load = [&](size_t offset) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + offset));
  };
  constexpr uint64_t kFar[] = {PowerOfX(4 * 128 + 32), PowerOfX(4 * 128 - 32)};
  constexpr uint64_t kNear[] = {PowerOfX(128 + 32), PowerOfX(128 - 32)};
  const __m128i far = _mm_set_epi64x(kFar[1], kFar[0]);
  const __m128i near = _mm_set_epi64x(kNear[1], kNear[0]);
  __m128i a = _mm_xor_si128(load(0), _mm_cvtsi32_si128(value));
  __m128i b = load(16);
  __m128i c = load(32);
  __m128i d = load(48);
  size_t done = 64;
  for (; done + 64 <= size; done += 64) {
    a = Fold(a, far, load(done));
    b = Fold(b, far, load(done + 16));
    c = Fold(c, far, load(done + 32));
    d = Fold(d, far, load(done + 48));
  }
  __m128i folded = Fold(Fold(Fold(a, near, b), near, c), near, d);
  for (; done < size; done += 16) folded = Fold(folded, near, load(done));
  unsigned char rest[16];
  _mm_storeu_si128(reinterpret_cast<__m128i*>(rest), folded);
  return Advance(rest, sizeof(rest), 0);
}

#endif

}  // namespace

uint32_t Crc32Portable(const void* data, size_t size, uint32_t crc) {
  return ~Advance(static_cast<const unsigned char*>(data), size, ~crc);
}

uint32_t Crc32(const void* data, size_t size, uint32_t crc) {
#ifdef __x86_64__
  static const bool folding = __builtin_cpu_supports("pclmul") != 0 &&
                              __builtin_cpu_supports("sse4.1") != 0;
  if (folding && size >= 64) {
    const auto* bytes = static_cast<const unsigned char*>(data);
    const size_t folded = size / 16 * 16;
    const uint32_t value = AdvanceFolding(bytes, folded, ~crc);
    return ~Advance(bytes + folded, size - folded, value);
  }
#endif
  return Crc32Portable(data, size, crc);
}

}  // namespace mir::checkpoint
