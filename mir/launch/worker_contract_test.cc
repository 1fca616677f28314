#include "mir/launch/worker_contract.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>

namespace mir::launch {
namespace {

TEST(WorkerContractTest, IsFoundInAProgramThatHasIt) {
  EXPECT_TRUE(KeepsWorkerContract("/proc/self/exe"));
  EXPECT_FALSE(KeepsWorkerContract("/bin/sh"));
}

TEST(WorkerContractTest, AScriptMayHaveItToo) {
  const std::string path = ::testing::TempDir() + "/worker.sh";
  std::ofstream(path) << "#!/bin/sh\n# " << kWorkerContract << "\n";
  EXPECT_TRUE(KeepsWorkerContract(path));
}

TEST(WorkerContractTest, WhatCannotBeReadDoesNotHaveIt) {
  EXPECT_FALSE(KeepsWorkerContract("/nonexistent"));
  EXPECT_FALSE(KeepsWorkerContract("/"));
  const std::string path = ::testing::TempDir() + "/empty";
  std::ofstream(path).close();
  EXPECT_FALSE(KeepsWorkerContract(path));
}

}  // namespace
}  // namespace mir::launch
