#include "dstune/base/shared_library_file.hpp"

#include <cstddef>

#include <elf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "dstune/base/file.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;

const std::string good_path = std::string(DSTUNE_TEST_PLUGINS) + "/libtest_plugin_good.so";

std::string refusal(std::string content) {
  try {
    const SharedLibraryFile file(std::move(content), "lib.so");
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

/// A library's content with one of its bytes changed.
std::string with_byte(std::string content, std::size_t offset, int value) {
  content.at(offset) = static_cast<char>(value);
  return content;
}

TEST(SharedLibraryFileTest, FindsWhatALibraryDefines) {
  const SharedLibraryFile file(good_path);
  const auto stamp = file.find("dstune_workload_stamp");
  ASSERT_TRUE(stamp);
  EXPECT_FALSE(stamp->is_function);
  EXPECT_EQ(stamp->size_bytes, 8U);
  EXPECT_EQ(file.content_of(*stamp, 4), "DSTN");
  EXPECT_FALSE(file.content_of(*stamp, 9)) << "more than it has";
  ASSERT_TRUE(file.find("dstune_workload_step"));
  EXPECT_TRUE(file.find("dstune_workload_step")->is_function);
  EXPECT_FALSE(file.find("malloc")) << "it needs that one";
  EXPECT_FALSE(file.find("misbehave")) << "nobody else sees that one";
}

TEST(SharedLibraryFileTest, SaysWhatAFileIsInstead) {
  const std::string good = read_file(good_path);
  EXPECT_EQ(refusal(good), "");
  EXPECT_THAT(refusal("#!/bin/sh\necho a text, and long enough\n"), HasSubstr("not an ELF file"));
  EXPECT_THAT(refusal(""), HasSubstr("not an ELF file"));
  EXPECT_THAT(refusal(with_byte(good, EI_CLASS, ELFCLASS32)), HasSubstr("64-bit"));
  EXPECT_THAT(refusal(with_byte(good, EI_DATA, ELFDATA2MSB)), HasSubstr("byte order"));
  constexpr std::size_t machine = offsetof(Elf64_Ehdr, e_machine);
  EXPECT_THAT(refusal(with_byte(good, machine, EM_S390)),
              HasSubstr("is for machine number 22, and this machine is"));
  constexpr std::size_t type = offsetof(Elf64_Ehdr, e_type);
  EXPECT_THAT(refusal(with_byte(good, type, ET_REL)), HasSubstr("object file"));
  EXPECT_THAT(refusal(with_byte(good, type, ET_EXEC)), HasSubstr("a program"));
  EXPECT_THAT(refusal(read_file("/proc/self/exe")), HasSubstr("is a program"));
  EXPECT_THROW(SharedLibraryFile("/absent/lib.so"), IoError);
}

TEST(SharedLibraryFileTest, RefusesEveryTruncation) {
  const std::string good = read_file(good_path);
  const SharedLibraryFile whole(good, "lib.so");
  // What follows the last segment (names of sections and the like) is nobody's need.
  std::size_t needed = good.size();
  while (needed > 0 && refusal(good.substr(0, needed - 1)).empty()) --needed;
  ASSERT_GT(needed, 4096U);
  for (std::size_t bytes = 0; bytes < needed; bytes += 1 + bytes / 100) {
    EXPECT_NE(refusal(good.substr(0, bytes)), "") << bytes;
  }
}

TEST(SharedLibraryFileTest, SurvivesDamage) {
  const std::string good = read_file(good_path);
  int refused = 0;
  for (std::size_t offset = 0; offset < good.size(); offset += 1 + offset / 200) {
    for (const int value : {0x00, 0x7F, 0xFF}) {
      if (!refusal(with_byte(good, offset, value)).empty()) ++refused;
    }
  }
  EXPECT_GT(refused, 20);
}

}  // namespace
}  // namespace dstune
