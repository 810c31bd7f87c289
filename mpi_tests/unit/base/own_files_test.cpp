#include "dstune/base/own_files.hpp"

#include <filesystem>

#include <gtest/gtest.h>

namespace dstune {
namespace {

TEST(OwnFilesTest, StandBesideTheProgram) {
  const std::filesystem::path own = std::filesystem::read_symlink("/proc/self/exe");
  EXPECT_EQ(find_own_file(own.filename()), own.string());
  EXPECT_EQ(find_own_file("a-file-that-is-nowhere"), std::nullopt);
  // A folder is none.
  EXPECT_EQ(find_own_file(".."), std::nullopt);
  EXPECT_TRUE(is_own_program());
}

}  // namespace
}  // namespace dstune
