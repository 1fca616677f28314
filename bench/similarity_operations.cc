#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <benchmark/benchmark.h>

#include "bench/operation.h"
#include "mir/losses/compat/mutual_information.h"
#include "mir/losses/compat/ncc.h"
#include "mir/losses/compat/presets.h"
#include "mir/losses/gradient_penalty.h"
#include "mir/losses/mind_ssc.h"

namespace mir::bench {
namespace {

namespace compat = losses::compat;

int64_t Bytes(const at::Tensor& tensor) { return tensor.nbytes(); }

Operation NccVxmForward(const Size& size) {
  const at::Tensor image = SmoothNoise(size, 1);
  const at::Tensor other = SmoothNoise(size, 1);
  return {[=] {
            const at::NoGradGuard no_grad;
            benchmark::DoNotOptimize(compat::NccVxm()(image, other));
          },
          2 * Bytes(image)};
}

// The gradient to the first image, as a registration by MIR takes it.
template <typename Loss>
int RegisterSimilarity(const char* name, const Loss& loss) {
  return Register(name, [=](const Size& size) -> Operation {
    const at::Tensor image = SmoothNoise(size, 1);
    const at::Tensor other = SmoothNoise(size, 1);
    return {[=] {
              RunWithGradient(
                  [&](const at::Tensor& leaf) { return loss(leaf, other); },
                  image);
            },
            3 * Bytes(image)};
  });
}

Operation Grad3dAndGradient(const Size& size) {
  const at::Tensor flow = SmoothField(size);
  const losses::GradientPenalty penalty =
      compat::Grad3d(losses::GradientNorm::kL2);
  return {[=] { RunWithGradient(penalty, flow); }, 2 * Bytes(flow)};
}

[[maybe_unused]] const int registered[] = {
    Register("ncc_vxm9_fwd", NccVxmForward),
    RegisterSimilarity("ncc_vxm9_fwd_bwd", compat::NccVxm()),
    RegisterSimilarity("ncc_vfa9_fwd_bwd", compat::NccVfa()),
    RegisterSimilarity("fastncc9_fwd_bwd", compat::FastNcc()),
    RegisterSimilarity("mi_fwd_bwd", compat::MutualInformation()),
    RegisterSimilarity("mattes_mi_fwd_bwd", compat::MattesMutualInformation()),
    RegisterSimilarity("mind_fwd_bwd", losses::MindSsc()),
    RegisterSimilarity("corrratio_fwd_bwd", compat::CorrRatio()),
    RegisterSimilarity("ssim3d_fwd_bwd", compat::Ssim3d()),
    RegisterSimilarity("ngf_fwd_bwd", compat::NormalizedGradientFieldLoss()),
    Register("grad3d_fwd_bwd", Grad3dAndGradient),
};

}  // namespace
}  // namespace mir::bench
