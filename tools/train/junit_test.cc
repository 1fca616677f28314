#include "tools/train/junit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "mir/testing/status_matchers.h"

namespace mir::tools {
namespace {

using ::mir::testing::IsOk;
using ::mir::testing::StatusIs;
using ::testing::HasSubstr;
using Result = JunitCase::Result;

const JunitCase kRun = {"run", 0, Result::kPassed, "", ""};

TEST(JunitReportTest, CountsAndShowsEachResult) {
  EXPECT_EQ(JunitReport("train x",
                        {{"run", 2.5, Result::kPassed, "", ""},
                         {"rank 0", 1, Result::kFailed, "code 1", "last words"},
                         {"rank 1", 2, Result::kError, "SIGSEGV", ""},
                         {"rank 2", 2, Result::kSkipped, "stopped", ""}}),
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
            "<testsuites>\n"
            "  <testsuite name=\"train x\" tests=\"4\" failures=\"1\" "
            "errors=\"1\" skipped=\"1\" time=\"2.500\">\n"
            "    <testcase classname=\"train x\" name=\"run\" time=\"2.500\">"
            "</testcase>\n"
            "    <testcase classname=\"train x\" name=\"rank 0\" "
            "time=\"1.000\"><failure message=\"code 1\">last words</failure>"
            "</testcase>\n"
            "    <testcase classname=\"train x\" name=\"rank 1\" "
            "time=\"2.000\"><error message=\"SIGSEGV\"></error></testcase>\n"
            "    <testcase classname=\"train x\" name=\"rank 2\" "
            "time=\"2.000\"><skipped message=\"stopped\"/></testcase>\n"
            "  </testsuite>\n"
            "</testsuites>\n");
}

TEST(JunitReportTest, OddBytesMakeNoBrokenXml) {
  const std::string report = JunitReport(
      "a<b",
      {{"\"&\"", 0, Result::kFailed, "x > y", "\x1b[31mred\n\xff tail"}});
  EXPECT_THAT(report, HasSubstr("name=\"a&lt;b\""));
  EXPECT_THAT(report, HasSubstr("name=\"&quot;&amp;&quot;\""));
  EXPECT_THAT(report, HasSubstr("\"x &gt; y\">?[31mred\n\xef\xbf\xbd tail<"));
}

TEST(JunitReportTest, WritesAFileOrSaysWhyNot) {
  const std::string path = absl::StrCat(::testing::TempDir(), "/report.xml");
  ASSERT_THAT(WriteJunitReport(path, "s", {kRun}), IsOk());
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  EXPECT_EQ(text.str(), JunitReport("s", {kRun}));
  EXPECT_THAT(WriteJunitReport(path + "/x.xml", "s", {}),
              StatusIs(absl::StatusCode::kFailedPrecondition,
                       HasSubstr("report.xml/x.xml: Not a directory")));
}

}  // namespace
}  // namespace mir::tools
