#include "mir/autograd/recompute.h"

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/ops/bernoulli.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "mir/precision/autocast.h"
#include "mir/precision/precision.h"
#include "mir/testing/gradient_check.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::autograd {
namespace {

using ::mir::testing::RelativeL2Near;
using ::mir::testing::TensorEq;

// Two layers and dropout between: input and weights are [8, 8].
at::Tensor Network(const at::Tensor& input, const at::Tensor& first,
                   const at::Tensor& second) {
  const at::Tensor hidden = at::tanh(at::matmul(input, first));
  return at::matmul(hidden * at::bernoulli(hidden.detach(), 0.5), second);
}

struct Case {
  at::Tensor input, first, second;
  Case() {
    at::manual_seed(3);
    for (at::Tensor* tensor : {&input, &first, &second}) {
      *tensor = at::randn({8, 8}).requires_grad_();
    }
  }
  std::vector<at::Tensor> Gradients() const {
    return {input.grad(), first.grad(), second.grad()};
  }
};

void ExpectEqual(const std::vector<at::Tensor>& actual,
                 const std::vector<at::Tensor>& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_TRUE(actual[i].defined()) << i;
    EXPECT_THAT(actual[i], TensorEq(expected[i])) << i;
  }
}

TEST(RecomputeTest, ValueGradientsAndDrawsAreThoseOfAPlainCall) {
  for (const precision::Precision precision :
       {precision::Precision::kFloat32, precision::Precision::kBFloat16}) {
    const Case plain, again;
    at::Tensor expected, actual, draw_plain, draw_again;
    {
      const precision::Autocast autocast(at::kCPU, precision);
      at::manual_seed(5);
      expected = Network(plain.input, plain.first, plain.second);
      // A random number between the passes must not be drawn twice.
      draw_plain = at::rand({3});
      at::manual_seed(5);
      actual = Recompute(
          [&](const at::Tensor& x) {
            return Network(x, again.first, again.second);
          },
          again.input, {again.first, again.second, again.first});
      draw_again = at::rand({3});
    }
    EXPECT_THAT(actual, TensorEq(expected));
    EXPECT_THAT(draw_again, TensorEq(draw_plain));
    expected.sum().backward();
    const at::Tensor next_plain = at::rand({3});
    at::manual_seed(5);
    at::bernoulli(at::zeros({8, 8}), 0.5);
    at::rand({3});
    actual.sum().backward();  // Outside autocast, as a training loop does.
    EXPECT_THAT(at::rand({3}), TensorEq(next_plain));
    ExpectEqual(again.Gradients(), plain.Gradients());
    EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
    EXPECT_TRUE(at::autocast::is_autocast_cache_enabled());
  }
}

TEST(RecomputeTest, AWeightUsedBeforeAndAfterUnderAutocastKeepsItsGradient) {
  const auto run = [](bool recompute) {
    const Case c;
    {
      const precision::Autocast autocast(at::kCPU,
                                         precision::Precision::kBFloat16);
      const auto layer = [&](const at::Tensor& x) {
        return at::tanh(at::matmul(x, c.first));
      };
      const at::Tensor x =
          recompute ? Recompute(layer, c.input, {c.first}) : layer(c.input);
      at::matmul(layer(x), c.second).sum().backward();
    }
    return c.Gradients();
  };
  const std::vector<at::Tensor> actual = run(true), expected = run(false);
  for (size_t i = 0; i < actual.size(); ++i) {
    ASSERT_TRUE(actual[i].defined()) << i;
    // Sums of 16-bit gradients differ by their rounding.
    EXPECT_THAT(actual[i], RelativeL2Near(expected[i], 7.9e-3)) << i;
  }
}

TEST(RecomputeTest, SegmentsNest) {
  const Case plain, again;
  at::manual_seed(5);
  Network(Network(plain.input, plain.first, plain.second), plain.first,
          plain.second)
      .sum()
      .backward();
  at::manual_seed(5);
  int calls = 0;
  const auto inner = [&](const at::Tensor& x) {
    ++calls;
    return Network(x, again.first, again.second);
  };
  const std::vector<at::Tensor> parameters = {again.first, again.second};
  Recompute(
      [&](const at::Tensor& x) {
        return inner(Recompute(inner, x, parameters));
      },
      again.input, parameters)
      .sum()
      .backward();
  EXPECT_EQ(calls, 2 + 2 + 1);  // Forward, outer again, inner again.
  ExpectEqual(again.Gradients(), plain.Gradients());
}

TEST(RecomputeTest, SeveralInputsAndOutputsSomeUnused) {
  const Case c;
  const at::Tensor index = at::zeros({2}, at::kLong);
  const std::vector<at::Tensor> outputs = Recompute(
      [&](const std::vector<at::Tensor>& x) -> std::vector<at::Tensor> {
        return {x[0] * c.first, x[1] + 1, x[0] * 2};
      },
      {c.input, index}, {c.first, c.second});
  ASSERT_EQ(outputs.size(), 3u);
  EXPECT_EQ(outputs[1].scalar_type(), at::kLong);
  outputs[0].sum().backward();
  EXPECT_THAT(c.input.grad(), TensorEq(c.first.detach()));
  EXPECT_THAT(c.first.grad(), TensorEq(c.input.detach()));
  EXPECT_FALSE(c.second.grad().defined());
}

TEST(RecomputeTest, GradientsAreExact) {
  at::manual_seed(7);
  EXPECT_LT(testing::GradientError(
                [](const std::vector<at::Tensor>& x) {
                  return Recompute(
                      [&](const at::Tensor& y) {
                        return at::tanh(at::matmul(y, x[1])) * x[1];
                      },
                      x[0], {x[1]});
                },
                {at::rand({4, 4}, at::kDouble), at::rand({4, 4}, at::kDouble)}),
            1e-8);
}

TEST(RecomputeTest, KeepsNothingOfTheFirstComputation) {
  const Case c;
  c10::weak_intrusive_ptr<c10::TensorImpl> hidden(
      at::zeros({}).getIntrusivePtr());
  const at::Tensor output = Recompute(
      [&](const at::Tensor& x) {
        const at::Tensor y = at::matmul(x, c.first);
        hidden = c10::weak_intrusive_ptr<c10::TensorImpl>(y.getIntrusivePtr());
        return at::matmul(at::tanh(y), c.second);
      },
      c.input, {c.first, c.second});
  EXPECT_TRUE(hidden.expired());
  output.sum().backward();
  EXPECT_TRUE(hidden.expired());
}

TEST(RecomputeTest, ASegmentKnowsThatItRunsAgain) {
  const Case c;
  std::vector<bool> again;
  const at::Tensor output = Recompute(
      [&](const at::Tensor& x) {
        again.push_back(IsRecomputing());
        return x * 2;
      },
      c.input, {});
  output.sum().backward();
  EXPECT_THAT(again, ::testing::ElementsAre(false, true));
  EXPECT_FALSE(IsRecomputing());
}

TEST(RecomputeTest, APlainCallWhereNoGradientIsWanted) {
  const Case c;
  int calls = 0;
  const auto segment = [&](const at::Tensor& x) {
    ++calls;
    return x * 2;
  };
  EXPECT_FALSE(Recompute(segment, c.input.detach(), {}).requires_grad());
  {
    const at::AutoGradMode off(false);
    EXPECT_FALSE(Recompute(segment, c.input, {c.first}).requires_grad());
  }
  EXPECT_EQ(calls, 2);
}

// Counts as DDP does: after the gradient of a parameter is accumulated.
class CountingHook : public torch::autograd::FunctionPostHook {
 public:
  explicit CountingHook(int& count) : count_(count) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& outputs,
      const torch::autograd::variable_list&) override {
    ++count_;
    return outputs;
  }

 private:
  int& count_;
};

TEST(RecomputeTest, HooksOfAParameterRunOnceWhenItsGradientIsThere) {
  const Case c;
  int count = 0;
  const auto accumulator = torch::autograd::impl::grad_accumulator(c.first);
  accumulator->add_post_hook(std::make_unique<CountingHook>(count));
  const auto layer = [&](const at::Tensor& x) {
    return at::tanh(at::matmul(x, c.first));
  };
  Recompute(
      [&](const at::Tensor& x) {
        return layer(Recompute(layer, x, {c.first}));
      },
      c.input, {c.first})
      .sum()
      .backward();
  EXPECT_EQ(count, 1);
}

TEST(RecomputeTest, AForgottenParameterIsAnError) {
  const Case c;
  const at::Tensor output = Recompute(
      [&](const at::Tensor& x) { return Network(x, c.first, c.second); },
      c.input, {c.first});
  try {
    output.sum().backward();
    FAIL() << "the gradient of `second` was lost";
  } catch (const c10::ValueError& error) {
    EXPECT_THAT(error.what_without_backtrace(),
                ::testing::HasSubstr("not among its `parameters`"));
  }
}

TEST(RecomputeTest, RejectsSecondDerivativesAndUndefinedArguments) {
  const Case c;
  const auto square = [](const at::Tensor& x) { return x * x; };
  const at::Tensor output = Recompute(square, c.input, {}).sum();
  EXPECT_THROW(torch::autograd::grad({output}, {c.input}, {},
                                     /*retain_graph=*/true,
                                     /*create_graph=*/true),
               c10::NotImplementedError);
  EXPECT_THROW(Recompute(square, at::Tensor(), {}), c10::ValueError);
  EXPECT_THROW(Recompute(square, c.input, {at::Tensor()}), c10::ValueError);
}

TEST(RecomputeTest, AChangedParameterIsAnError) {
  const Case c;
  const at::Tensor output = Recompute(
      [&](const at::Tensor& x) { return x * c.first; }, c.input, {c.first});
  c.first.detach().add_(1);
  EXPECT_THROW(output.sum().backward(), c10::Error);
}

}  // namespace
}  // namespace mir::autograd
