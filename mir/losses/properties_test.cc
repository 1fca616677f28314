// What every loss promises, for those that factory_test does not see: they
// take more than two images, or labels.

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "mir/losses/dice.h"
#include "mir/losses/displacement_energy.h"
#include "mir/losses/gradicon.h"
#include "mir/losses/gradient_penalty.h"
#include "mir/losses/kl_divergence.h"
#include "mir/losses/local_ncc.h"
#include "mir/losses/mse.h"
#include "mir/losses/mutual_information.h"
#include "mir/losses/reconstruction.h"
#include "mir/losses/segmentation_loss.h"
#include "mir/losses/sparse_dice.h"
#include "mir/losses/ssim.h"
#include "mir/losses/weight_priors.h"
#include "mir/precision/autocast.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::losses {
namespace {

using mir::testing::TensorEq;
using ::testing::HasSubstr;

using Inputs = std::vector<at::Tensor>;

at::Tensor Random(at::IntArrayRef sizes, uint64_t seed) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed),
                  at::TensorOptions(at::kFloat));
}

at::Tensor Labels(at::IntArrayRef sizes, int64_t classes) {
  return at::randint(0, classes, sizes, at::detail::createCPUGenerator(5),
                     at::TensorOptions(at::kLong));
}

// A loss of some floating tensors, each of which it is differentiable in, and
// sets of these that it must stand.
struct Case {
  std::string name;
  std::function<at::Tensor(const Inputs&)> loss;
  std::vector<Inputs> inputs;  // The first: an ordinary one.
};
void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

std::vector<Inputs> ImagePairs() {
  const std::vector<int64_t> sizes = {1, 1, 6, 7, 8};
  const at::Tensor a = Random(sizes, 1), b = Random(sizes, 2);
  const at::Tensor zeros = at::zeros(sizes);
  return {{a, b},
          {zeros, zeros.clone()},
          {zeros + 0.5, zeros + 0.25},
          {a, zeros},
          {255 * a, 255 * b},
          {4000 * a - 1000, 4000 * b - 1000},
          {(a > 0.5).to(at::kFloat), (a == a.max()).to(at::kFloat)},
          {Random({1, 1, 1, 7, 1}, 1), Random({1, 1, 1, 7, 1}, 2)},
          {Random({2, 2, 7, 8}, 1), Random({2, 2, 7, 8}, 2)}};
}

std::vector<Inputs> Fields(int count) {
  std::vector<Inputs> all;
  for (const std::vector<int64_t>& sizes : std::vector<std::vector<int64_t>>{
           {1, 3, 6, 7, 8}, {2, 3, 2, 1, 3}, {1, 3, 1, 1, 1}, {1, 2, 4, 5}}) {
    for (const double scale : {1.0, 0.0, 1e4}) {
      Inputs fields;
      for (int i = 0; i < count; ++i) {
        fields.push_back(scale * Random(sizes, i + 1));
      }
      all.push_back(fields);
    }
  }
  return all;
}

// Where each window or voxel counts `weight` of the images' shape.
template <typename Loss>
Case Weighted(const std::string& name, const Loss& loss, bool empty) {
  return {name + (empty ? "WithoutWeight" : "Weighted"),
          [=](const Inputs& in) {
            std::vector<int64_t> sizes = in[0].sizes().vec();
            sizes[0] = sizes[1] = 1;
            const at::Tensor weight =
                empty ? at::zeros(sizes) : Random(sizes, 7) + 0.1;
            return loss(in[0], in[1], weight);
          },
          ImagePairs()};
}

template <typename Loss>
Case WeightedField(const std::string& name, const Loss& loss) {
  return {name,
          [=](const Inputs& in) {
            std::vector<int64_t> sizes = in[0].sizes().vec();
            sizes[1] = 1;
            return loss(in[0], Random(sizes, 7));
          },
          Fields(1)};
}

// Scores or probabilities of three classes.
std::vector<Inputs> ThreeClasses() {
  const std::vector<int64_t> sizes = {1, 3, 4, 5, 6};
  const at::Tensor scores = Random(sizes, 1);
  at::Tensor single = at::zeros(sizes);
  single.select(1, 1).fill_(1);
  return {{scores},
          {at::zeros(sizes)},
          {at::ones(sizes)},
          {single},
          {255 * scores},
          {4000 * scores - 1000},
          {Random({2, 3, 1, 5, 1}, 1)},
          {Random({2, 3, 4, 5}, 1)}};
}

std::vector<int64_t> LabelShape(const at::Tensor& scores) {
  std::vector<int64_t> sizes = scores.sizes().vec();
  sizes[1] = 1;
  return sizes;
}

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const bool empty : {false, true}) {
    LocalNccOptions gaussian;
    gaussian.sigma = 1.5;
    cases.push_back(Weighted("LocalNcc", LocalNcc(), empty));
    cases.push_back(Weighted("GaussianNcc", LocalNcc(gaussian), empty));
    cases.push_back(Weighted("MutualInformation", MutualInformation(), empty));
    cases.push_back(Weighted("NormalizedMutualInformation",
                             NormalizedMutualInformation(), empty));
    cases.push_back(Weighted("Ssim", Ssim(), empty));
    cases.push_back(Weighted("Mse", Mse(), empty));
    cases.push_back(Weighted("L1", L1(), empty));
    cases.push_back(Weighted("Charbonnier", Charbonnier(), empty));
  }
  cases.push_back({"WideWindowNcc",
                   [](const Inputs& in) {
                     LocalNccOptions options;
                     options.window = 41;
                     return LocalNcc(options)(in[0], in[1]);
                   },
                   ImagePairs()});
  cases.push_back({"WideWindowSsim",
                   [](const Inputs& in) {
                     SsimOptions options;
                     options.window = 41;
                     return Ssim(options)(in[0], in[1]);
                   },
                   ImagePairs()});
  cases.push_back(
      {"CompositeReconstruction",
       [](const Inputs& in) { return CompositeReconstruction()(in[0], in[1]); },
       ImagePairs()});

  for (const GradientNorm norm :
       {GradientNorm::kL1, GradientNorm::kL2, GradientNorm::kIsotropic}) {
    GradientPenaltyOptions options;
    options.norm = norm;
    const std::string number = std::to_string(static_cast<int>(norm));
    cases.push_back(
        WeightedField("WeightedPenalty" + number, GradientPenalty(options)));
    if (norm == GradientNorm::kIsotropic) continue;
    GradIconOptions consistency;
    consistency.norm = norm;
    consistency.both_directions = true;
    cases.push_back(
        {"GradIcon" + number,
         [=](const Inputs& in) { return GradIcon(consistency)(in[0], in[1]); },
         Fields(2)});
    cases.push_back({"GradIconExact" + number,
                     [=](const Inputs& in) {
                       return GradIconExact(consistency)(in[0], in[1]);
                     },
                     Fields(2)});
  }
  for (const EnergyKind kind :
       {EnergyKind::kBending, EnergyKind::kLinearElastic}) {
    DisplacementEnergyOptions options;
    options.kind = kind;
    cases.push_back(
        WeightedField("WeightedEnergy" + std::to_string(static_cast<int>(kind)),
                      DisplacementEnergy(options)));
  }
  cases.push_back({"LogBeta",
                   [](const Inputs& in) { return LogBeta(in[0], 1.3); },
                   Fields(1)});
  cases.push_back({"LogGaussian",
                   [](const Inputs& in) { return LogGaussian(in[0], 0.7); },
                   Fields(1)});
  std::vector<Inputs> gaussians = Fields(4);
  for (Inputs& fields : gaussians) {
    // Logarithms of what float32 holds.
    fields[1] = fields[1].clamp_max(20);
    fields[3] = fields[3].clamp_max(20);
  }
  cases.push_back({"KlDivergence",
                   [](const Inputs& in) {
                     return KlDivergence(in[0], in[1], in[2], in[3]);
                   },
                   gaussians});
  cases.push_back({"MultivariateKlDivergence",
                   [](const Inputs& in) {
                     return MultivariateKlDivergence(in[0], in[1], in[2],
                                                     in[3]);
                   },
                   gaussians});

  for (const int64_t classes : {1, 2, 3}) {
    const std::string number = std::to_string(classes) + "Labels";
    cases.push_back({"DiceOf" + number,
                     [=](const Inputs& in) {
                       return Dice()(in[0], Labels(LabelShape(in[0]), classes));
                     },
                     ThreeClasses()});
    cases.push_back({"SegmentationOf" + number,
                     [=](const Inputs& in) {
                       return SegmentationLoss()(
                           in[0], Labels(LabelShape(in[0]), classes));
                     },
                     ThreeClasses()});
    // With one label there is background alone.
    cases.push_back({"SparseDiceOf" + number,
                     [=](const Inputs& in) {
                       const at::Tensor labels =
                           Labels(LabelShape(in[0]), classes);
                       return SparseDice()(labels, labels.flip(3), in[0]);
                     },
                     Fields(1)});
  }
  cases.push_back({"SegmentationWhereAllIsIgnored",
                   [](const Inputs& in) {
                     SegmentationLossOptions options;
                     options.ignored_label = 0;
                     return SegmentationLoss(options)(
                         in[0], at::zeros(LabelShape(in[0]), at::kLong));
                   },
                   ThreeClasses()});
  return cases;
}

Inputs Leaves(const Inputs& inputs, at::ScalarType dtype) {
  Inputs leaves;
  for (const at::Tensor& input : inputs) {
    leaves.push_back(input.to(dtype).detach().clone().requires_grad_());
  }
  return leaves;
}

class LossPropertiesTest : public ::testing::TestWithParam<Case> {};

TEST_P(LossPropertiesTest, ValueAndGradientAreFinite) {
  for (size_t set = 0; set < GetParam().inputs.size(); ++set) {
    const Inputs leaves = Leaves(GetParam().inputs[set], at::kFloat);
    const at::Tensor value = GetParam().loss(leaves);
    EXPECT_EQ(value.dim(), 0);
    EXPECT_TRUE(value.isfinite().item<bool>()) << "inputs " << set;
    value.backward();
    for (const at::Tensor& leaf : leaves) {
      EXPECT_TRUE(!leaf.grad().defined() ||
                  leaf.grad().isfinite().all().item<bool>())
          << "inputs " << set;
    }
    if (GetParam().name.find("Ncc") != std::string::npos) {
      EXPECT_LE(value.item<double>(), 0) << "inputs " << set;
      EXPECT_GE(value.item<double>(), -1) << "inputs " << set;
    }
  }
}

TEST_P(LossPropertiesTest, SixteenBitInputsAndAutocastChangeNothing) {
  for (const at::ScalarType dtype : {at::kHalf, at::kBFloat16}) {
    const Inputs narrow = Leaves(GetParam().inputs[0], dtype);
    const Inputs wide = Leaves(narrow, at::kFloat);
    const at::Tensor expected = GetParam().loss(wide);
    expected.backward();
    const precision::Autocast autocast(at::kCPU,
                                       precision::Precision::kBFloat16);
    const at::Tensor found = GetParam().loss(narrow);
    found.backward();
    EXPECT_THAT(found, TensorEq(expected));
    for (size_t i = 0; i < narrow.size(); ++i) {
      ASSERT_EQ(narrow[i].grad().defined(), wide[i].grad().defined());
      if (!wide[i].grad().defined()) continue;
      EXPECT_THAT(narrow[i].grad(), TensorEq(wide[i].grad().to(dtype)));
    }
  }
}

TEST_P(LossPropertiesTest, WhatIsNotFiniteIsRefusedWithItsIndex) {
  if (GetParam().name.find("WithoutWeight") != std::string::npos) {
    GTEST_SKIP() << "voxels that do not count may hold anything";
  }
  const Inputs& good = GetParam().inputs[0];
  for (size_t i = 0; i < good.size(); ++i) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(),
                              -std::numeric_limits<float>::infinity()}) {
      Inputs bad = good;
      bad[i] = good[i].clone();
      bad[i][0][0][2][3][4] = value;
      try {
        GetParam().loss(bad);
        ADD_FAILURE() << "input " << i << " may be " << value;
      } catch (const c10::ValueError& error) {
        EXPECT_THAT(error.what_without_backtrace(),
                    HasSubstr("[0, 0, 2, 3, 4]"));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Losses, LossPropertiesTest,
                         ::testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace mir::losses
