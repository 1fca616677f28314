#include "mir/base/catch_torch.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "mir/testing/status_matchers.h"

namespace mir {
namespace {

using mir::testing::IsOk;
using mir::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(CatchTorchTest, PassesStatusesOn) {
  EXPECT_THAT(CatchTorch([] { return absl::OkStatus(); }), IsOk());
  EXPECT_THAT(CatchTorch([] { return absl::NotFoundError("x"); }),
              StatusIs(absl::StatusCode::kNotFound, "x"));
}

TEST(CatchTorchTest, WrongValuesAreInvalidArgumentsWithoutABacktrace) {
  const absl::Status status = CatchTorch([] {
    TORCH_CHECK_VALUE(false, "wanted 3 channels, got 2");
    return absl::OkStatus();
  });
  EXPECT_THAT(status, StatusIs(absl::StatusCode::kInvalidArgument,
                               AllOf(HasSubstr("wanted 3 channels, got 2"),
                                     Not(HasSubstr("Exception raised")))));
}

TEST(CatchTorchTest, TellsOutOfMemoryFromOtherErrors) {
  EXPECT_THAT(CatchTorch([] {
                at::empty({int64_t{1} << 60}, at::kByte);
                return absl::OkStatus();
              }),
              StatusIs(absl::StatusCode::kResourceExhausted, HasSubstr("")));
  EXPECT_THAT(CatchTorch([] {
                at::empty({2, 2}).view({3});
                return absl::OkStatus();
              }),
              StatusIs(absl::StatusCode::kInternal, HasSubstr("shape")));
  EXPECT_THAT(
      CatchTorch([]() -> absl::Status { throw std::runtime_error("plain"); }),
      StatusIs(absl::StatusCode::kInternal, "plain"));
}

}  // namespace
}  // namespace mir
