#include "tools/train/event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace mir::tools {
namespace {

std::vector<nlohmann::json> Lines(const std::string& path) {
  std::vector<nlohmann::json> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    lines.push_back(nlohmann::json::parse(line));
  }
  return lines;
}

TEST(EventLogTest, EventsOfSeveralStartsFollowEachOther) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/events.jsonl");
  {
    EventLog log(path);
    log.Add("started", {{"rank", 1}, {"name", "a \"b\" \xff"}});
    log.Enter("running");
    log.Enter("running");
  }
  EventLog log(path);
  log.Enter("spawn");
  EXPECT_EQ(log.fault(), "");

  const std::vector<nlohmann::json> lines = Lines(path);
  ASSERT_EQ(lines.size(), 3);
  EXPECT_EQ(lines[0]["event"], "started");
  EXPECT_EQ(lines[0]["rank"], 1);
  EXPECT_EQ(lines[0]["name"], "a \"b\" \xef\xbf\xbd");  // U+FFFD.
  EXPECT_EQ(lines[1]["event"], "state");
  EXPECT_EQ(lines[1]["state"], "running");
  EXPECT_EQ(lines[2]["state"], "spawn");
  absl::Time time;
  std::string error;
  EXPECT_TRUE(absl::ParseTime(
      absl::RFC3339_full, lines[0]["time"].get<std::string>(), &time, &error))
      << error;
}

TEST(EventLogTest, WhatCannotBeWrittenIsTold) {
  EventLog nowhere(::testing::TempDir() + "/no/such/folder/events.jsonl");
  nowhere.Add("started");
  EXPECT_EQ(nowhere.fault(), "No such file or directory");
  EventLog full("/dev/full");
  full.Add("started");
  EXPECT_EQ(full.fault(), "No space left on device");
  EXPECT_EQ(EventLog().fault(), "");
}

}  // namespace
}  // namespace mir::tools
