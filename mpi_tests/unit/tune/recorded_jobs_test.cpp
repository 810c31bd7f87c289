// Estimates of the end of jobs that were recorded on a machine that others used, too.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include <gtest/gtest.h>

#include "../../bench/recorded_job.hpp"
#include "folder_test.hpp"

namespace dstune {
namespace {

class RecordedJobsTest : public test::FolderTest {};

TEST_F(RecordedJobsTest, HalfOfTheEstimatesAtHalfTimeAreWithinAThird) {
  std::vector<std::string> paths;
  for (const auto& file : std::filesystem::recursive_directory_iterator(DSTUNE_RECORDED_JOBS))
    if (file.path().extension() == ".json") paths.push_back(file.path());
  std::ranges::sort(paths);
  ASSERT_GE(paths.size(), 12U);
  std::size_t close = 0, inside = 0;
  for (const std::string& path : paths) {
    const bench::RecordedJob job = bench::read_recorded_job(path, folder_.string());
    const double half_s = job.end_s / 2;
    const auto left = bench::estimate_at(job, half_s);
    ASSERT_TRUE(left) << job.name;
    EXPECT_FALSE(left->assumes.empty());
    EXPECT_LE(left->low_s, left->seconds);
    EXPECT_GE(left->high_s, left->seconds);
    close += std::abs(left->seconds / half_s - 1) <= 0.3 ? 1 : 0;
    inside += left->low_s <= half_s && half_s <= left->high_s ? 1 : 0;
  }
  EXPECT_GE(2 * close, paths.size());
  EXPECT_GE(3 * inside, 2 * paths.size());
}

}  // namespace
}  // namespace dstune
