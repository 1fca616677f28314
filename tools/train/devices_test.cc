#include "tools/train/devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "mir/launch/env.h"

namespace mir::tools {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

// The fake driver is found by LD_LIBRARY_PATH, which the loader reads once when
// a program starts: this one starts anew with it.
class DevicesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* name :
         {"FAKE_CUDA_INIT", "FAKE_CUDA_DEVICES", "CUDA_VISIBLE_DEVICES"}) {
      unsetenv(name);
    }
  }
};

TEST_F(DevicesTest, NamesAllDevices) {
  setenv("FAKE_CUDA_DEVICES", "2", 1);
  const CudaDevices devices = FindCudaDevices(launch::CurrentEnv());
  EXPECT_EQ(devices.count(), 2);
  EXPECT_THAT(devices.names, ElementsAre("Fake GPU 0", "Fake GPU 1"));
  EXPECT_EQ(devices.why_none, "");
}

TEST_F(DevicesTest, OnlyVisibleOnesCount) {
  setenv("FAKE_CUDA_DEVICES", "4", 1);
  launch::Env env = launch::CurrentEnv();
  env["CUDA_VISIBLE_DEVICES"] = "1,3";
  EXPECT_EQ(FindCudaDevices(env).count(), 2);
  // What the environment passed in says counts, not this process's.
  setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  EXPECT_EQ(FindCudaDevices(env).count(), 2);
  env.erase("CUDA_VISIBLE_DEVICES");
  EXPECT_EQ(FindCudaDevices(env).count(), 4);
}

TEST_F(DevicesTest, SaysWhyThereIsNone) {
  const auto why = [](const char* name, const char* value) {
    setenv(name, value, 1);
    const CudaDevices devices = FindCudaDevices(launch::CurrentEnv());
    EXPECT_THAT(devices.names, IsEmpty());
    unsetenv(name);
    return devices.why_none;
  };
  EXPECT_EQ(why("CUDA_VISIBLE_DEVICES", ""), "CUDA_VISIBLE_DEVICES is empty");
  EXPECT_EQ(why("FAKE_CUDA_DEVICES", "0"), "the driver finds no device");
  EXPECT_EQ(why("FAKE_CUDA_INIT", "100"), "the driver finds no device");
  EXPECT_EQ(why("FAKE_CUDA_INIT", "803"), "cuInit fails with error 803");
  EXPECT_EQ(why("FAKE_CUDA_INIT", "crash"),
            "the driver ends the process that asks it");
  EXPECT_EQ(why("CUDA_VISIBLE_DEVICES", "7"),
            "the driver finds no device; CUDA_VISIBLE_DEVICES=7");
}

}  // namespace
}  // namespace mir::tools

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const std::string folder =
      std::filesystem::absolute("tools/train/fake_cuda").string();
  const char* const path = getenv("LD_LIBRARY_PATH");
  if (path == nullptr || folder != path) {
    setenv("LD_LIBRARY_PATH", folder.c_str(), 1);
    execv("/proc/self/exe", argv);
    return 1;
  }
  return RUN_ALL_TESTS();
}
