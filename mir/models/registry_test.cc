#include "mir/models/registry.h"

#include <c10/util/Exception.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "mir/testing/status_matchers.h"

namespace mir::models {
namespace {

using ::mir::testing::StatusIs;
using ::nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// No family is linked here.
TEST(RegistryTest, SaysWhatAProgramCannotBuild) {
  EXPECT_THAT(RegisteredModels(), IsEmpty());
  EXPECT_THAT(
      BuildModel("voxelmorph", json::object()),
      StatusIs(absl::StatusCode::kFailedPrecondition,
               AllOf(HasSubstr("voxelmorph"), HasSubstr("link its family"))));
  EXPECT_THAT(BuildModel("voxelmorp", json::object()),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("did you mean voxelmorph?")));

  // A family that only fails, in its two ways.
  RegisterModel("voxelmorph",
                [](const json& config)
                    -> absl::StatusOr<std::shared_ptr<RegistrationModel>> {
                  TORCH_CHECK_VALUE(config.empty(), "no such value");
                  return absl::InvalidArgumentError("no such setting");
                });
  EXPECT_THAT(RegisteredModels(), ElementsAre("voxelmorph"));
  EXPECT_THAT(BuildModel("voxelmorph", json::object()),
              StatusIs(absl::StatusCode::kInvalidArgument, "no such setting"));
  EXPECT_THAT(
      BuildModel("voxelmorph", {{"key", 1}}),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no such value")));
}

}  // namespace
}  // namespace mir::models
