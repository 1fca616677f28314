#ifndef BENCH_OPERATION_H_
#define BENCH_OPERATION_H_

#include <ATen/core/Tensor.h>

#include <array>
#include <cstdint>
#include <functional>
#include <string>

namespace mir::bench {

// A volume's (D, H, W).
using Size = std::array<int64_t, 3>;

// An operation on inputs that it holds.
struct Operation {
  std::function<void()> run;
  // What one run reads and writes at least: its inputs and outputs, in bytes.
  int64_t bytes;
};

// Registers the benchmarks `<name>/<D>x<H>x<W>` at 96x96x96 and 160x192x224,
// and at 16x16x16 for the smoke test; `make` builds the operation for a size,
// outside the measured time.
//
// Each reports bytes per second, and that over the speed at which a float32
// tensor as large as the displacement of that size is copied (`of_copy`; the
// copy's own benchmark is `copy`), and by how many MiB the first run's resident
// memory rises over its inputs (`peak_MiB`, outputs included). The label says
// whose memory the outputs are: every operation here returns tensors of its
// own, and the process keeps freed memory (as the training programs do), so
// that after the first run their pages are there.
//
// Returns 0, so that a source can register at start-up.
int Register(const std::string& name,
             std::function<Operation(const Size&)> make);

// Runs `run`, and returns how far the resident memory rises over what stands
// before, in MiB.
double PeakMib(const std::function<void()>& run);

// float32 [1, channels, D, H, W], uniform noise of [0, 1) averaged over 5^3
// voxels, as the peer's.
at::Tensor SmoothNoise(const Size& size, int64_t channels);

// float32 [1, 3, D, H, W], in voxels: Gaussian noise times 4 averaged over 5^3
// voxels, as the peer's.
at::Tensor SmoothField(const Size& size);

// Sums `function(input)` and takes the gradient to `input`, a leaf.
void RunWithGradient(
    const std::function<at::Tensor(const at::Tensor&)>& function,
    const at::Tensor& input);

}  // namespace mir::bench

#endif  // BENCH_OPERATION_H_
