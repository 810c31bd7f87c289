// The manual has every file that a job writes.
#include "dstune/report/result_files.hpp"

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parts.hpp"

namespace dstune {
namespace {

TEST(ResultFilesTest, HasEveryFileOnce) {
  std::vector<std::string> expected{std::string(file_name::journal), std::string(file_name::lock),
                                    std::string(file_name::manifest),
                                    std::string(file_name::verification),
                                    std::string(file_name::library_choices)};
  for (const std::string_view name : file_name::in_results) expected.emplace_back(name);
  for (const std::string_view name : file_name::in_experiment)
    if (name != file_name::memory_picture) expected.push_back("NAME/" + std::string(name));
  std::vector<std::string> listed;
  for (const ResultFile& file : result_files()) {
    listed.push_back(file.path);
    EXPECT_FALSE(file.help.empty()) << file.path;
    EXPECT_NE(file.help.back(), '.') << file.path;
  }
  EXPECT_THAT(listed, testing::UnorderedElementsAreArray(expected));
}

}  // namespace
}  // namespace dstune
