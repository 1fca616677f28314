#include "mir/training/any_size.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/slice.h>
#include <gtest/gtest.h>

#include "mir/testing/tensor_matchers.h"

namespace mir::training {
namespace {

using ::mir::testing::TensorEq;

// Answers with the moving image as every channel of the displacement, and with
// a regularized field at half the resolution if asked.
class EchoModel : public models::RegistrationModel {
 public:
  explicit EchoModel(bool half) : half_(half) {}

  models::Registration Register(const at::Tensor& moving,
                                const at::Tensor& fixed) override {
    seen_ = moving.sizes().vec();
    const at::Tensor field = at::cat({moving, moving, fixed}, 1);
    return {field, half_ ? field.slice(2, 0, field.size(2), 2) : field};
  }
  std::vector<int64_t> SizeMultiple() const override { return {4, 8, 2}; }

  std::vector<int64_t> seen_;

 private:
  const bool half_;
};

at::Tensor Ramp(at::IntArrayRef sizes) {
  return at::arange(c10::multiply_integers(sizes), at::kFloat).view(sizes);
}

TEST(AnySizeTest, PadsToTheMultiplesAndCropsBack) {
  EchoModel model(/*half=*/false);
  const at::Tensor moving = Ramp({1, 1, 5, 7, 3});
  const models::Registration found =
      RegisterAnySize(model, moving, at::ones({1, 1, 5, 7, 3}));
  EXPECT_EQ(model.seen_, (std::vector<int64_t>{1, 1, 8, 8, 4}));
  EXPECT_THAT(found.displacement.slice(1, 0, 1), TensorEq(moving));
  EXPECT_THAT(found.regularized, TensorEq(found.displacement));
}

TEST(AnySizeTest, LeavesFittingSizesAndOtherResolutionsAlone) {
  EchoModel model(/*half=*/true);
  const at::Tensor moving = Ramp({2, 1, 8, 8, 4});
  EXPECT_THAT(
      RegisterAnySize(model, moving, moving).displacement.slice(1, 0, 1),
      TensorEq(moving));
  const at::Tensor odd = Ramp({1, 1, 7, 8, 4});
  EXPECT_EQ(RegisterAnySize(model, odd, odd).regularized.sizes(),
            (std::vector<int64_t>{1, 3, 4, 8, 4}));
}

TEST(AnySizeTest, RefusesOtherShapes) {
  EchoModel model(/*half=*/false);
  EXPECT_THROW(RegisterAnySize(model, Ramp({1, 1, 8, 8}), Ramp({1, 1, 8, 8})),
               c10::ValueError);
  EXPECT_THROW(
      RegisterAnySize(model, Ramp({1, 1, 4, 8, 2}), Ramp({1, 1, 4, 8, 4})),
      c10::ValueError);
}

}  // namespace
}  // namespace mir::training
