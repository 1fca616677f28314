#include <ATen/Context.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/rand.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "mir/models/model_list.h"
#include "mir/models/registry.h"
#include "mir/precision/autocast.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::models {
namespace {

using ::mir::testing::RelativeL2Near;
using ::nlohmann::json;

// A model with volumes and channels for which layers have kernels of their own.
struct Large {
  const char* name;
  json changes;
};

void PrintTo(const Large& large, std::ostream* out) { *out << large.name; }

class LargeVolumesTest : public ::testing::TestWithParam<Large> {};

struct Results {
  at::Tensor displacement;
  at::Tensor gradient;  // Of its square, to all parameters.
};

Results Differentiate(RegistrationModel& model, const at::Tensor& moving,
                      const at::Tensor& fixed, precision::Precision precision) {
  model.zero_grad();
  const precision::Autocast autocast(at::kCPU, precision);
  const at::Tensor displacement = model.Register(moving, fixed).displacement;
  displacement.square().sum().backward();
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& parameter : model.parameters()) {
    gradients.push_back(parameter.grad().flatten());
  }
  return {displacement.detach(), at::cat(gradients)};
}

// The golden cases are small, and go by LibTorch's operators. So does float64
// under autocast, which leaves it alone.
TEST_P(LargeVolumesTest, KernelsComputeWhatOperatorsDo) {
  const std::vector<int64_t> size = {64, 64, 96};
  json config = *ModelConfig(GetParam().name, "tiny");
  config["img_size"] = size;
  config.update(GetParam().changes);
  at::manual_seed(3);
  const auto model = *BuildModel(GetParam().name, config);
  model->eval();
  model->to(at::kDouble);
  std::vector<int64_t> sizes = {1, 1};
  sizes.insert(sizes.end(), size.begin(), size.end());
  const at::Tensor moving = at::rand(sizes, at::kDouble);
  const at::Tensor fixed = at::rand(sizes, at::kDouble);
  const Results kernels =
      Differentiate(*model, moving, fixed, precision::Precision::kFloat32);
  const Results operators =
      Differentiate(*model, moving, fixed, precision::Precision::kBFloat16);
  ASSERT_EQ(kernels.displacement.scalar_type(), at::kDouble);
  EXPECT_THAT(kernels.displacement,
              RelativeL2Near(operators.displacement, 1e-10));
  EXPECT_THAT(kernels.gradient, RelativeL2Near(operators.gradient, 1e-10));
  EXPECT_FALSE(kernels.displacement.equal(operators.displacement))
      << "nothing went by the kernels";
}

INSTANTIATE_TEST_SUITE_P(
    Models, LargeVolumesTest,
    ::testing::Values(Large{"voxelmorph", json::object()},
                      Large{"vfa",
                            {{"start_channels", 8}, {"max_channels", 8}}},
                      Large{"transmorph", {{"reg_head_chan", 16}}}),
    [](const ::testing::TestParamInfo<Large>& info) {
      return std::string(info.param.name);
    });

}  // namespace
}  // namespace mir::models
