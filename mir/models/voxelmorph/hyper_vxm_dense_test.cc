#include "mir/models/voxelmorph/hyper_vxm_dense.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/full.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/tensor.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mir/models/model_list.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::models {
namespace {

using ::mir::testing::RelativeL2Near;
using ::mir::testing::TensorEq;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A tiny model whose displacement is not nearly zero.
std::shared_ptr<HyperVxmDense> MovingModel(int64_t ndims = 3) {
  at::manual_seed(11);
  VxmDenseConfig config =
      *VxmDenseConfigFromJson(*ModelConfig("hyper_voxelmorph", "tiny"));
  config.image_size.assign(ndims, 8);
  auto model = std::make_shared<HyperVxmDense>(config);
  for (const auto& item : model->named_parameters()) {
    if (item.key() == "flow.linear_conv.weight") {
      item.value().detach().mul_(1e5);
    }
  }
  return model;
}

TEST(HyperVxmDenseTest, FindsAnotherFieldForAnotherHyperparameter) {
  const auto model = MovingModel();
  EXPECT_THAT(model->SizeMultiple(), ElementsAre(4, 4, 4));
  EXPECT_THAT(model->DerivedKeys(), ElementsAre("spatial_trans.grid"));
  const at::Tensor moving = at::rand({2, 1, 8, 8, 12});
  const at::Tensor fixed = at::rand({2, 1, 8, 8, 12});

  const Registration usual = model->Register(moving, fixed);
  EXPECT_THAT(usual.displacement.sizes(), ElementsAre(2, 3, 8, 8, 12));
  EXPECT_THAT(usual.hyperparameters, ElementsAre(0.3));
  model->SetHyperparameters({0.9});
  const Registration other = model->Register(moving, fixed);
  EXPECT_THAT(other.hyperparameters, ElementsAre(0.9));
  EXPECT_GT(
      (other.displacement - usual.displacement).abs().max().item<double>(),
      1e-3);
  // One row, and one of each pair, say the same.
  for (const int64_t rows : {1, 2}) {
    EXPECT_THAT(
        model->Forward(moving, fixed, at::full({rows, 1}, 0.9)).displacement,
        TensorEq(other.displacement));
  }
  const at::Tensor image = at::rand({1, 1, 8, 12});
  EXPECT_THAT(MovingModel(2)->Register(image, image).displacement.sizes(),
              ElementsAre(1, 2, 8, 12));
}

TEST(HyperVxmDenseTest, GradientsReachEveryParameter) {
  const auto model = MovingModel();
  const at::Tensor moving = at::rand({1, 1, 8, 8, 8});
  model->Register(moving, at::rand({1, 1, 8, 8, 8}))
      .displacement.square()
      .sum()
      .backward();
  for (const auto& item : model->named_parameters()) {
    ASSERT_TRUE(item.value().grad().defined()) << item.key();
    EXPECT_GT(item.value().grad().abs().max().item<double>(), 0) << item.key();
  }
}

TEST(HyperVxmDenseTest, RunsInFloat16) {
  const auto model = MovingModel();
  const at::Tensor image = at::rand({1, 1, 8, 8, 8});
  const at::Tensor expected = model->Register(image, image).displacement;
  model->to(at::kHalf);
  const at::Tensor half = image.to(at::kHalf);
  const at::Tensor found = model->Register(half, half).displacement;
  EXPECT_EQ(found.scalar_type(), at::kHalf);
  EXPECT_THAT(found, RelativeL2Near(expected, 8 * 9.8e-4));
}

TEST(HyperVxmDenseTest, RejectsWhatItCannotTake) {
  const auto model = MovingModel();
  const at::Tensor image = at::rand({2, 1, 8, 8, 8});
  const auto error = [&](const at::Tensor& moving,
                         const at::Tensor& hyperparameters) -> std::string {
    try {
      model->Forward(moving, image, hyperparameters);
    } catch (const c10::ValueError& thrown) {
      return thrown.what_without_backtrace();
    }
    return "no error";
  };
  EXPECT_THAT(error(image, at::tensor({0.2, 0.4}).view({2, 1})),
              HasSubstr("rows that differ"));
  EXPECT_THAT(error(image, at::rand({1, 2})), HasSubstr("[1, 1] or [N, 1]"));
  EXPECT_THAT(error(at::rand({1, 1, 8, 8, 8}), at::rand({1, 1})),
              HasSubstr("HyperVxmDense wants a moving and a fixed image"));
  EXPECT_THROW(model->SetHyperparameters({0.2, 0.3}), c10::ValueError);
  EXPECT_THROW(model->SetHyperparameters({1.5}), c10::ValueError);
  VxmDenseConfig config;
  config.encoder_features.clear();
  EXPECT_THROW(HyperVxmDense{config}, c10::ValueError);
}

}  // namespace
}  // namespace mir::models
