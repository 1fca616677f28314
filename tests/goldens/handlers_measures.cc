#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/tensor.h>

#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "mir/geometry/identity_grid.h"
#include "mir/metrics/dice.h"
#include "mir/metrics/digital_diffeomorphism.h"
#include "tests/goldens/handlers.h"

namespace mir::goldens {
namespace {

std::vector<int64_t> LabelsBetween(int64_t first, int64_t last) {
  std::vector<int64_t> labels(last - first + 1);
  std::iota(labels.begin(), labels.end(), first);
  return labels;
}

// MIR counts a label that neither segmentation has as 0.
void DiceOfMir(GoldenRun& run) {
  const at::Tensor pred = run.In("pred").to(at::kLong);
  const at::Tensor truth = run.In("true").to(at::kLong);
  const auto dice = [&](const std::vector<int64_t>& labels) {
    return at::tensor(metrics::Dice(pred, truth, labels).dice).nan_to_num(0);
  };
  run.Out("voi_default", dice(LabelsBetween(1, 3)).mean());
  run.Out("voi", dice({1, 2, 5, 29, 40}).mean());
  run.Out("all", dice(LabelsBetween(0, 30)).mean());
  run.Out("substruct", dice(LabelsBetween(0, 30)));
}

// Which outputs are whole volumes, and which sums alone, is the case's choice.
void Diffeomorphism(GoldenRun& run) {
  using ::mir::metrics::JacobianStencil;
  const std::pair<const char*, JacobianStencil> stencils[] = {
      {"c", JacobianStencil::kCentral},
      {"pxpypz", JacobianStencil::kPlusPlusPlus},
      {"pxpymz", JacobianStencil::kPlusPlusMinus},
      {"pxmypz", JacobianStencil::kPlusMinusPlus},
      {"pxmymz", JacobianStencil::kPlusMinusMinus},
      {"mxpypz", JacobianStencil::kMinusPlusPlus},
      {"mxpymz", JacobianStencil::kMinusPlusMinus},
      {"mxmypz", JacobianStencil::kMinusMinusPlus},
      {"mxmymz", JacobianStencil::kMinusMinusMinus},
      {"Jstar_1", JacobianStencil::kStar1},
      {"Jstar_2", JacobianStencil::kStar2},
  };
  const at::Tensor mapping = run.In("trans").to(at::kDouble);
  const at::Tensor displacement =
      (mapping - geometry::IdentityGrid(mapping.sizes().slice(1), at::kDouble))
          .unsqueeze(0);
  at::Tensor all_positive;
  const auto out = [&](const std::string& name, const at::Tensor& volume) {
    run.Out("sum_" + name, volume.sum());
    if (run.golden().Find("out/" + name).defined()) run.Out(name, volume);
  };
  for (const auto& [name, stencil] : stencils) {
    const at::Tensor determinant =
        metrics::StencilJacobian(displacement, stencil)[0];
    out(name, determinant);
    const bool corner = stencil != JacobianStencil::kCentral &&
                        stencil != JacobianStencil::kStar1 &&
                        stencil != JacobianStencil::kStar2;
    if (!corner) continue;
    const at::Tensor positive = (determinant > 0).to(at::kDouble);
    all_positive = all_positive.defined() ? all_positive * positive : positive;
  }
  out("all_positive", all_positive);

  // Without the faces: off in the first quarter of the planes.
  at::Tensor mask = at::ones(displacement[0].select(0, 0).sizes());
  const int64_t quarter = (mask.size(0) - 2) / 4;
  mask.narrow(/*dim=*/0, 0, 1 + quarter).zero_();
  const metrics::DiffeomorphismMeasures measures =
      metrics::MeasureDiffeomorphism(displacement, mask.unsqueeze(0));
  run.Out("non_diff_voxels", at::scalar_tensor(static_cast<double>(
                                 measures.non_diffeomorphic_voxels)));
  run.Out("non_diff_tetrahedra",
          at::scalar_tensor(measures.non_diffeomorphic_tetrahedra));
  run.Out("non_diff_volume",
          at::scalar_tensor(measures.non_diffeomorphic_volume));
  at::Tensor volumes = metrics::NonDiffeomorphicVolume(displacement)[0];
  volumes.narrow(/*dim=*/0, 0, quarter).zero_();
  run.Out("non_diff_volume_map", volumes);
}

void IdentityGridOfMir(GoldenRun& run) {
  const at::Tensor like = run.In("dummy");
  run.Out("grid",
          geometry::IdentityGrid(like.sizes().slice(1), like.options()));
}

}  // namespace

HandlerTable MeasureHandlers() {
  return {
      {"acc_dice", DiceOfMir},
      {"acc_identity_grid", IdentityGridOfMir},
      {"acc_jacobian_folding", Diffeomorphism},
      {"acc_jacobian_smooth", Diffeomorphism},
  };
}

}  // namespace mir::goldens
