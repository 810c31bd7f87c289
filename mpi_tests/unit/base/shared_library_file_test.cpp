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

std::string refusal(const std::string& content) {
  try {
    (void)exported_symbols(content, "lib.so");
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
  const std::string content = read_file(good_path);
  const std::map<std::string, ExportedSymbol> symbols = exported_symbols(content, good_path);
  ASSERT_TRUE(symbols.contains("dstune_workload_stamp"));
  const ExportedSymbol& stamp = symbols.at("dstune_workload_stamp");
  EXPECT_FALSE(stamp.is_function);
  EXPECT_EQ(stamp.content.size(), 8U);
  EXPECT_EQ(stamp.content.substr(0, 4), "DSTN");
  ASSERT_TRUE(symbols.contains("dstune_workload_step"));
  EXPECT_TRUE(symbols.at("dstune_workload_step").is_function);
  EXPECT_FALSE(symbols.contains("malloc")) << "it needs that one";
  EXPECT_FALSE(symbols.contains("misbehave")) << "nobody else sees that one";
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
}

TEST(SharedLibraryFileTest, RefusesEveryTruncation) {
  const std::string good = read_file(good_path);
  // Nobody needs what follows the last segment, names of sections and the like.
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
