#include "tools/register/register_volumes.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "mir/base/exit_status.h"
#include "mir/launch/exit_codes.h"
#include "mir/testing/status_matchers.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::tools {
namespace {

using ::mir::testing::AllClose;
using ::mir::testing::StatusIs;
using ::mir::testing::TensorEq;
using ::testing::AllOf;
using ::testing::HasSubstr;

// Finds the same displacement everywhere, in voxels of whatever it is given.
class ConstantModel : public models::RegistrationModel {
 public:
  explicit ConstantModel(std::vector<double> shift)
      : shift_(std::move(shift)) {}

  models::Registration Register(const at::Tensor& moving,
                                const at::Tensor& /*fixed*/) override {
    seen = moving;
    at::Tensor field = at::zeros_like(moving).repeat({1, 3, 1, 1, 1});
    for (int64_t axis = 0; axis < 3; ++axis) {
      field.select(1, axis).fill_(shift_[axis]);
    }
    return {field, field};
  }
  std::vector<int64_t> SizeMultiple() const override { return {4, 4, 4}; }

  at::Tensor seen;

 private:
  const std::vector<double> shift_;
};

TrainedModel Trained(std::vector<double> shift, double spacing_mm = 0) {
  TrainedModel trained;
  trained.model = std::make_shared<ConstantModel>(std::move(shift));
  trained.convention = geometry::WarpConvention::kExact;
  trained.prepare.intensity.kind = data::Intensity::Kind::kNone;
  trained.prepare.spacing_mm = spacing_mm;
  return trained;
}

// A ramp along the first axis, on a grid of that spacing whose first voxel lies
// at the origin.
data::Volume Ramp(std::vector<int64_t> sizes, double spacing_mm) {
  data::Volume volume;
  volume.voxels = at::arange(sizes[0], at::kFloat)
                      .view({sizes[0], 1, 1})
                      .expand(sizes)
                      .contiguous();
  volume.grid.size = {sizes[0], sizes[1], sizes[2]};
  for (int axis = 0; axis < 3; ++axis) {
    volume.grid.to_world[axis][axis] = spacing_mm;
  }
  volume.name = "ramp.nii";
  return volume;
}

TEST(RegisterVolumesTest, FieldAndImageAreCroppedToTheFixedGrid) {
  const VolumePair pair = {Ramp({6, 5, 7}, 1), Ramp({6, 5, 7}, 1), {}, {}};
  const RegisteredVolumes found =
      RegisterVolumes(Trained({1, 0, 0}), pair, {}).value();
  EXPECT_EQ(found.displacement.sizes(), (std::vector<int64_t>{3, 6, 5, 7}));
  EXPECT_THAT(found.displacement[0],
              TensorEq(at::full({6, 5, 7}, 1, at::kFloat)));
  EXPECT_THAT(found.warped.slice(0, 0, 5),
              TensorEq(pair.moving.voxels.slice(0, 1, 6)));
  EXPECT_THAT(found.warped[5], TensorEq(at::full({5, 7}, 0, at::kFloat)));
}

TEST(RegisterVolumesTest, OutsideReadsTheFill) {
  const VolumePair pair = {Ramp({4, 4, 4}, 1), Ramp({4, 4, 4}, 1), {}, {}};
  const RegisteredVolumes found =
      RegisterVolumes(Trained({9, 0, 0}), pair, {.fill = -1024}).value();
  EXPECT_THAT(found.warped, TensorEq(at::full({4, 4, 4}, -1024, at::kFloat)));
}

TEST(RegisterVolumesTest, MirsConventionBecomesAnExactField) {
  const VolumePair pair = {Ramp({5, 4, 4}, 1), Ramp({5, 4, 4}, 1), {}, {}};
  TrainedModel trained = Trained({0, 0, 0});
  trained.convention = geometry::WarpConvention::kMirCompatible;
  const RegisteredVolumes found = RegisterVolumes(trained, pair, {}).value();
  // Voxel v is read at v * 5 / 4 - 0.5.
  const at::Tensor expected = at::arange(5, at::kFloat) * 0.25 - 0.5;
  EXPECT_THAT(found.displacement[0].select(1, 0).select(1, 0),
              AllClose(expected, 1e-6));
}

TEST(RegisterVolumesTest, TheFieldOfACoarserGridIsScaled) {
  // The network sees 2 mm voxels: its shift of 1 is 2 voxels of 1 mm.
  const VolumePair pair = {
      Ramp({16, 16, 16}, 1), Ramp({16, 16, 16}, 1), {}, {}};
  const TrainedModel trained = Trained({1, 0, 0}, /*spacing_mm=*/2);
  const RegisteredVolumes found = RegisterVolumes(trained, pair, {}).value();
  EXPECT_EQ(static_cast<ConstantModel&>(*trained.model).seen.size(2), 8);
  EXPECT_EQ(found.displacement.sizes(), (std::vector<int64_t>{3, 16, 16, 16}));
  const at::Tensor inside =
      found.displacement.slice(1, 2, 14).slice(2, 2, 14).slice(3, 2, 14);
  EXPECT_THAT(inside[0], AllClose(at::full({12, 12, 12}, 2.0), 1e-5));
  EXPECT_THAT(inside[1], TensorEq(at::full({12, 12, 12}, 0, at::kFloat)));
}

TEST(RegisterVolumesTest, LabelsKeepTheirValues) {
  VolumePair pair = {Ramp({6, 4, 4}, 1), Ramp({6, 4, 4}, 1), {}, {}};
  pair.moving_labels = Ramp({6, 4, 4}, 1);
  pair.moving_labels.voxels = pair.moving_labels.voxels.to(at::kInt) * 10;
  const RegisteredVolumes found =
      RegisterVolumes(Trained({0.4, 0, 0}), pair, {}).value();
  EXPECT_THAT(found.warped_labels, TensorEq(pair.moving_labels.voxels));
}

TEST(RegisterVolumesTest, OtherGridsAreResampledOrRefusedNamingBoth) {
  const VolumePair pair = {Ramp({8, 8, 8}, 1), Ramp({4, 4, 4}, 2), {}, {}};
  EXPECT_THAT(RegisterVolumes(Trained({0, 0, 0}), pair, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("8x8x8"), HasSubstr("4x4x4"),
                             HasSubstr("--spacing"))));
  const RegisteredVolumes found =
      RegisterVolumes(Trained({0, 0, 0}, 1), pair, {}).value();
  // The outermost half voxel of the moving image counts as outside in one and
  // not in the other.
  const auto inside = [](const at::Tensor& volume) {
    return volume.slice(0, 0, 7).slice(1, 0, 7).slice(2, 0, 7);
  };
  EXPECT_THAT(inside(found.warped), AllClose(inside(found.moving), 1e-6));
  EXPECT_EQ(found.warped[4][4][4].item<float>(), 2);
}

TEST(RegisterVolumesTest, AFieldThatIsNotFiniteIsTheModelsFault) {
  const VolumePair pair = {Ramp({4, 4, 4}, 1), Ramp({4, 4, 4}, 1), {}, {}};
  const absl::Status status =
      RegisterVolumes(Trained({std::nan(""), 0, 0}), pair, {}).status();
  EXPECT_THAT(status,
              StatusIs(absl::StatusCode::kOutOfRange, HasSubstr("ramp.nii")));
  EXPECT_EQ(ExitCodeOf(status), launch::kNumeric);
}

TEST(RegisterVolumesTest, LabelsMustLieOnTheirImagesGrid) {
  VolumePair pair = {Ramp({8, 8, 8}, 1), Ramp({8, 8, 8}, 1), {}, {}};
  pair.fixed_labels = Ramp({8, 8, 8}, 2);
  EXPECT_THAT(RegisterVolumes(Trained({0, 0, 0}), pair, {}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("differ in their place in space")));
}

}  // namespace
}  // namespace mir::tools
