// What is refused is refused before anything of it runs: the subjects' constructor leaves a mark.
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "dstune/base/error.hpp"
#include "dstune/base/file.hpp"
#include "dstune/core/job.hpp"
#include "dstune/instrument/workloads.hpp"

namespace dstune {
namespace {

using testing::AllOf;
using testing::HasSubstr;

std::string path_of(const std::string& name) {
  return std::string(DSTUNE_TEST_PLUGINS) + "/libtest_plugin_" + name + ".so";
}

class PluginFunctionsTest : public testing::Test {
 protected:
  PluginFunctionsTest()
      : mark_(testing::TempDir() + "dstune_plugin_mark" + std::to_string(getpid())) {
    std::filesystem::remove(mark_);
    setenv("DSTUNE_TEST_PLUGIN_MARK", mark_.c_str(), 1);
  }
  ~PluginFunctionsTest() override {
    unsetenv("DSTUNE_TEST_PLUGIN_MARK");
    std::filesystem::remove(mark_);
  }
  [[nodiscard]] bool has_run() const { return std::filesystem::exists(mark_); }
  /// What checking and loading it says.
  static std::string refusal(const std::string& path) {
    try {
      check_plugin_library(path);
      load_plugin(path);
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  }

  std::string mark_;
};

TEST_F(PluginFunctionsTest, LoadsAPluginOnce) {
  EXPECT_EQ(check_plugin_library(path_of("good")), read_file(path_of("good")));
  EXPECT_FALSE(has_run()) << "the check runs nothing";
  const PluginFunctions& functions = load_plugin(path_of("good"));
  EXPECT_TRUE(has_run()) << "else the other tests show nothing";
  EXPECT_NE(functions.build, nullptr);
  EXPECT_NE(functions.step, nullptr);
  EXPECT_NE(functions.report, nullptr);
  EXPECT_NE(functions.destroy, nullptr);
  EXPECT_EQ(&load_plugin(path_of("good")), &functions);
  EXPECT_EQ(refusal(DSTUNE_EXAMPLE_PLUGIN), "");
}

TEST_F(PluginFunctionsTest, RefusesWhatIsNoPlugin) {
  EXPECT_THAT(refusal(path_of("without_stamp")),
              AllOf(HasSubstr("dstune_workload_stamp"), HasSubstr("DSTUNE_WORKLOAD_DEFINE_STAMP")));
  EXPECT_THAT(refusal(path_of("without_report")),
              HasSubstr("does not export dstune_workload_report:"));
  EXPECT_THAT(refusal(path_of("other_version")),
              AllOf(HasSubstr("version 9"), HasSubstr("version 1")));
  EXPECT_THAT(refusal(path_of("other_magic")), HasSubstr("that is none"));
  EXPECT_THAT(refusal(path_of("absent")), HasSubstr("libtest_plugin_absent.so"));
  EXPECT_FALSE(has_run());
}

TEST_F(PluginFunctionsTest, RefusesWhatLacksSomethingItNeeds) {
  EXPECT_THAT(refusal(path_of("missing_function")),
              HasSubstr("undefined symbol: test_plugin_no_such_function"));
  EXPECT_THAT(refusal(path_of("missing_library")),
              AllOf(HasSubstr("libtest_plugin_absent.so"), HasSubstr("LD_LIBRARY_PATH")));
  EXPECT_FALSE(has_run());
}

}  // namespace
}  // namespace dstune
