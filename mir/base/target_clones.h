#ifndef MIR_BASE_TARGET_CLONES_H_
#define MIR_BASE_TARGET_CLONES_H_

// Compiles a function for AVX-512, AVX2 and any x86-64; the loader picks by
// the processor. Only for functions with external linkage that call nothing
// but what is inlined into them. With -ffp-contract=off all give the same bits.
// MIR_HAS_TARGETS says that a function can have versions of its own likewise.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define MIR_HAS_TARGETS
#define MIR_TARGET_CLONES \
  __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define MIR_TARGET_CLONES
#endif

#endif  // MIR_BASE_TARGET_CLONES_H_
