#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "mir/models/registry.h"
#include "mir/testing/status_matchers.h"

namespace mir::models {
namespace {

using ::mir::testing::IsOk;

TEST(AllModelsTest, TheListAndTheFactoriesHoldTheSameNames) {
  EXPECT_EQ(RegisteredModels(), ModelNames());
}

TEST(AllModelsTest, EachCallBuildsAnOwnModelWithParameters) {
  for (const std::string& name : ModelNames()) {
    SCOPED_TRACE(name);
    const nlohmann::json config = *ModelConfig(name, "tiny");
    const auto first = BuildModel(name, config);
    const auto second = BuildModel(name, config);
    ASSERT_THAT(first, IsOk());
    ASSERT_THAT(second, IsOk());
    const std::vector<at::Tensor> parameters = (*first)->parameters();
    ASSERT_FALSE(parameters.empty());
    ASSERT_EQ((*second)->parameters().size(), parameters.size());
    EXPECT_FALSE(parameters[0].is_alias_of((*second)->parameters()[0]));
    EXPECT_FALSE((*first)->SizeMultiple().empty());
  }
}

}  // namespace
}  // namespace mir::models
