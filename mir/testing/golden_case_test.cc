#include "mir/testing/golden_case.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "absl/status/status.h"
#include "mir/testing/status_matchers.h"
#include "mir/testing/tensor_matchers.h"

namespace mir::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const absl::StatusCode kInvalid = absl::StatusCode::kInvalidArgument;

// A folder with one case and one published layout.
class GoldenSetTest : public ::testing::Test {
 protected:
  GoldenSetTest() : root_(std::string(::testing::TempDir()) + "/goldens") {
    std::filesystem::remove_all(root_);
    Write("README.md", "# Cases\n\nSeed of this folder: 17.\n");
    Write("cases.tsv", "case\tgroup\nnet\tmodels\nfar\tmodels\n");
    Write("models.tsv",
          "id\tparameters\tstate_dict_entries\nbig\t301411\t24\n");
    Write("tolerances.tsv",
          "case\ttensor\tmax_abs\tmax_abs_over_max\trel_l2\n"
          "net\tout/y\t2e-3\t1e-3\t4e-4\nnet\tgrad/x\t-\t-\tnan\n");
    Write("net/manifest.tsv",
          "name\tdtype\tshape\taction\tkind\tgain\n"
          "conv.weight\tfloat32\t4x2x3\tfilled\tparameter\t2.0\n"
          "steps\tint64\tscalar\tkept\tbuffer\t-\n");
    Write("net/paramgrad.tsv",
          "name\tl2\tmax_abs\nconv.weight\t2.5e+00\t1.5e+00\n"
          "unused\tnone\tnone\n");
    Write("big@published/manifest.tsv",
          "name\tdtype\tshape\taction\tkind\tgain\n");
    c10::Dict<std::string, at::Tensor> tensors;
    tensors.insert("in/x", at::arange(6, at::kFloat).view({2, 3}));
    tensors.insert("out/y", at::ones({2}));
    const std::vector<char> bytes = torch::jit::pickle_save(tensors);
    Write("net/case.pt", std::string(bytes.begin(), bytes.end()));
  }

  void Write(const std::string& name, const std::string& text) {
    const std::filesystem::path path = std::filesystem::path(root_) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }

  const std::string root_;
};

TEST_F(GoldenSetTest, ReadsAFolder) {
  const absl::StatusOr<GoldenSet> set = GoldenSet::Open(root_);
  ASSERT_THAT(set, IsOk());
  EXPECT_THAT(set->present(), ElementsAre("big@published", "net"));
  EXPECT_THAT(set->listed(), ElementsAre("big@published", "far", "net"));

  const absl::StatusOr<GoldenCase> net = set->Read("net");
  ASSERT_THAT(net, IsOk());
  EXPECT_EQ(net->seed, 17u);
  EXPECT_THAT(net->Names("in/"), ElementsAre("x"));
  EXPECT_THAT(net->Names("out/"), ElementsAre("y"));
  EXPECT_THAT(net->Find("in/x"),
              TensorEq(at::arange(6, at::kFloat).view({2, 3})));
  EXPECT_FALSE(net->Find("in/z").defined());

  ASSERT_EQ(net->manifest.size(), 2u);
  EXPECT_EQ(net->manifest[0].name, "conv.weight");
  EXPECT_EQ(net->manifest[0].dtype, at::kFloat);
  EXPECT_THAT(net->manifest[0].shape, ElementsAre(4, 2, 3));
  EXPECT_TRUE(net->manifest[0].filled);
  EXPECT_TRUE(net->manifest[0].parameter);
  EXPECT_EQ(net->manifest[0].gain, 2);
  EXPECT_EQ(net->manifest[1].dtype, at::kLong);
  EXPECT_TRUE(net->manifest[1].shape.empty());
  EXPECT_FALSE(net->manifest[1].filled);
  EXPECT_FALSE(net->manifest[1].parameter);

  ASSERT_EQ(net->parameter_gradients.size(), 2u);
  EXPECT_TRUE(net->parameter_gradients[0].reached);
  EXPECT_EQ(net->parameter_gradients[0].l2, 2.5);
  EXPECT_EQ(net->parameter_gradients[0].max_abs, 1.5);
  EXPECT_FALSE(net->parameter_gradients[1].reached);

  EXPECT_EQ(net->figures.at("out/y").max_abs, 2e-3);
  EXPECT_EQ(net->figures.at("out/y").rel_l2, 4e-4);
  EXPECT_FALSE(net->figures.at("grad/x").max_abs.has_value());
  EXPECT_FALSE(net->figures.at("grad/x").rel_l2.has_value());

  const absl::StatusOr<GoldenCase> big = set->Read("big@published");
  ASSERT_THAT(big, IsOk());
  EXPECT_TRUE(big->tensors.empty());
  ASSERT_TRUE(big->published.has_value());
  EXPECT_EQ(big->published->parameters, 301411);
  EXPECT_EQ(big->published->entries, 24);
  EXPECT_FALSE(net->published.has_value());
}

TEST_F(GoldenSetTest, NamesTheFileThatIsWrong) {
  EXPECT_THAT(GoldenSet::Open(root_ + "/none"),
              StatusIs(absl::StatusCode::kNotFound,
                       HasSubstr(root_ + "/none/README.md")));
  const GoldenSet set = *GoldenSet::Open(root_);
  EXPECT_THAT(set.Read("far"),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("far/case.pt")));

  const struct {
    const char* file;
    const char* text;
    const char* message;
  } cases[] = {
      {"net/case.pt", "no archive", "case.pt"},
      {"net/manifest.tsv", "name\tdtype\n", "no column 'shape'"},
      {"net/manifest.tsv",
       "name\tdtype\tshape\taction\tkind\tgain\na\tfloat32\t2\n",
       "3 fields, not 6"},
      {"net/manifest.tsv",
       "name\tdtype\tshape\taction\tkind\tgain\n"
       "a\tcomplex\t2\tkept\tbuffer\t-\n",
       "unknown dtype complex"},
      {"net/manifest.tsv",
       "name\tdtype\tshape\taction\tkind\tgain\n"
       "a\tfloat32\t2xx\tkept\tbuffer\t-\n",
       "not a shape: 2xx"},
      {"net/manifest.tsv",
       "name\tdtype\tshape\taction\tkind\tgain\n"
       "a\tfloat32\t2\tfilled\tparameter\t-\n",
       "has no gain"},
      {"net/paramgrad.tsv", "name\tl2\tmax_abs\na\tmuch\t1\n",
       "not a number: line of a"},
  };
  for (const auto& [file, text, message] : cases) {
    std::ifstream before(root_ + "/" + file, std::ios::binary);
    const std::string intact(std::istreambuf_iterator<char>(before), {});
    Write(file, text);
    EXPECT_THAT(set.Read("net"), StatusIs(kInvalid, HasSubstr(message)));
    Write(file, intact);
  }
  EXPECT_THAT(set.Read("net"), IsOk());

  Write("tolerances.tsv", "case\ttensor\tmax_abs\trel_l2\na\tb\tsmall\t1\n");
  EXPECT_THAT(GoldenSet::Open(root_),
              StatusIs(kInvalid, HasSubstr("not a number: small")));
  Write("models.tsv", "id\tparameters\tstate_dict_entries\na\tmany\t1\n");
  EXPECT_THAT(GoldenSet::Open(root_),
              StatusIs(kInvalid, HasSubstr("not a number: line of a")));
  for (const char* text : {"No seed.", "Seed of this folder: one"}) {
    Write("README.md", text);
    EXPECT_THAT(GoldenSet::Open(root_),
                StatusIs(kInvalid, HasSubstr("Seed of this folder")));
  }
}

GoldenFigure Figure(double max_abs, double rel_l2) {
  GoldenFigure figure;
  figure.max_abs = max_abs;
  figure.rel_l2 = rel_l2;
  return figure;
}

TEST(GoldenRuleTest, OutputsMayDifferByTenTimesTheFigure) {
  const at::Tensor expected = at::tensor({4.0, -1.0});
  const auto off_by = [&](double gap) {
    return expected + at::tensor({0.0, gap});
  };
  EXPECT_TRUE(OutputPasses(off_by(0.0099), expected, Figure(1e-3, 0)));
  EXPECT_FALSE(OutputPasses(off_by(0.0101), expected, Figure(1e-3, 0)));
  // The floor, and the stand-in where there is no figure, are relative.
  EXPECT_TRUE(OutputPasses(off_by(3.9e-6), expected, Figure(0, 0)));
  EXPECT_FALSE(OutputPasses(off_by(4.1e-6), expected, Figure(0, 0)));
  EXPECT_TRUE(OutputPasses(off_by(3.9e-4), expected, {}));
  EXPECT_FALSE(OutputPasses(off_by(4.1e-4), expected, {}));
  EXPECT_FALSE(OutputPasses(off_by(NAN), expected, Figure(1, 1)));
  EXPECT_FALSE(OutputPasses(expected.view({2, 1}), expected, Figure(1, 1)));
  EXPECT_FALSE(OutputPasses(at::Tensor(), expected, Figure(1, 1)));
}

TEST(GoldenRuleTest, IntegersMayDifferInAThousandth) {
  const at::Tensor expected = at::zeros({2000}, at::kLong);
  at::Tensor actual = expected.clone();
  actual.slice(0, 0, 2).fill_(9);
  EXPECT_TRUE(OutputPasses(actual, expected, {}));
  actual.slice(0, 0, 3).fill_(9);
  EXPECT_FALSE(OutputPasses(actual, expected, {}));
}

TEST(GoldenRuleTest, GradientsAreComparedAsAWhole) {
  const at::Tensor expected = at::ones({100});
  const auto off_by = [&](double gap) { return expected * (1 + gap); };
  EXPECT_TRUE(GradientPasses(off_by(0.0099), expected, Figure(0, 1e-3)));
  EXPECT_FALSE(GradientPasses(off_by(0.0101), expected, Figure(0, 1e-3)));
  EXPECT_TRUE(GradientPasses(off_by(0.9e-4), expected, {}));
  EXPECT_FALSE(GradientPasses(off_by(1.1e-4), expected, {}));
  EXPECT_FALSE(GradientPasses(at::Tensor(), expected, Figure(0, 1)));
}

TEST(GoldenRuleTest, AboveTheCapMostElementsMustBeRightToTenPercent) {
  const at::Tensor expected = at::ones({100});
  at::Tensor actual = expected.clone();
  actual.slice(0, 0, 30).fill_(-1);
  EXPECT_TRUE(GradientPasses(actual, expected, Figure(0, 0.02)));
  EXPECT_FALSE(GradientPasses(actual, expected, Figure(0, 0.004)));
  actual.slice(0, 0, 31).fill_(-1);
  EXPECT_FALSE(GradientPasses(actual, expected, Figure(0, 0.02)));
  EXPECT_TRUE(GradientPasses(expected * 1.04, expected, Figure(0, 0.02)));
  EXPECT_FALSE(GradientPasses(expected * 1.11, expected, Figure(0, 0.02)));
}

TEST(GoldenRuleTest, FinalDisplacementsMayBeHalfAVoxelOffOnAverage) {
  const at::Tensor expected = at::zeros({1, 3, 2, 1, 1});
  at::Tensor actual = expected.clone();
  actual.select(2, 0).copy_(at::tensor({0.6, 0.0, 0.8}).view({1, 3, 1, 1}));
  // 0.99 and 0 voxels, then 1.01 and 0.
  EXPECT_TRUE(DisplacementPasses(actual * 0.99, expected));
  EXPECT_FALSE(DisplacementPasses(actual * 1.01, expected));
  EXPECT_FALSE(DisplacementPasses(at::zeros({1, 3, 1, 1, 1}), expected));
}

}  // namespace
}  // namespace mir::testing
