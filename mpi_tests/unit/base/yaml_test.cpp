#include "dstune/base/yaml.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "folder_test.hpp"
#include "golden.hpp"

namespace dstune {
namespace {

using testing::HasSubstr;

/// "f.yaml:3: …", or nothing where the text is read.
std::string yaml_refusal(const std::string& text) {
  try {
    (void)parse_yaml(text, "f.yaml");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(YamlTest, IsJsonOrRefused) {
  test::expect_golden(DSTUNE_TEST_DATA "/yaml.txt", [](const std::string& text) {
    const std::string refusal = yaml_refusal(text + "\n");
    if (refusal.empty()) return parse_yaml(text + "\n", "f.yaml").root().dump();
    // The library's place and words are its version's.
    const std::string words = "this is no YAML";
    return refusal.find(words) == std::string::npos ? refusal : words;
  });
  EXPECT_THAT(yaml_refusal("a:\n  b: 1\n c: 2\n"),
              HasSubstr("f.yaml:3: column 2: this is no YAML"));
  EXPECT_THAT(yaml_refusal("a: 1\nb: \xFF\n"), HasSubstr("f.yaml:2: byte 0xFF is not UTF-8 text"));
  EXPECT_THAT(yaml_refusal(std::string("a: 1\0", 5)), HasSubstr("byte 0x00"));
}

TEST(YamlTest, DepthIsLimited) {
  const auto nested = [](int depth) {
    return std::string(static_cast<std::size_t>(depth), '[') +
           std::string(static_cast<std::size_t>(depth), ']');
  };
  EXPECT_EQ(yaml_refusal(nested(200)), "");
  EXPECT_THAT(yaml_refusal(nested(201)), HasSubstr("f.yaml:1: lists and mappings are nested more"));
  EXPECT_THAT(yaml_refusal(nested(100'000)), HasSubstr("nested more"));
  EXPECT_THAT(yaml_refusal(fmt::format("- &a {}\n- {}\n", nested(150),
                                       std::string(100, '[') + "*a" + std::string(100, ']'))),
              HasSubstr("f.yaml:2: lists and mappings are nested more"));
}

TEST(YamlTest, AliasesDoNotGrowWithoutLimit) {
  std::string values = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n";
  for (int level = 1; level < 30; ++level) {
    values += fmt::format("a{0}: &a{0} [", level);
    for (int each = 0; each < 10; ++each)
      values += fmt::format("{}*a{}", each > 0 ? ", " : "", level - 1);
    values += "]\n";
  }
  EXPECT_THAT(yaml_refusal(values), HasSubstr("too large with what its aliases repeat"));
  std::string text = fmt::format("- &a {}\n", std::string(100'000, 'x'));
  for (int each = 0; each < 1000; ++each) text += "- *a\n";
  EXPECT_THAT(yaml_refusal(text), HasSubstr("too large with what its aliases repeat"));
}

TEST(YamlTest, ValuesHaveTheLinesOfTheirKeys) {
  const json::Document document = parse_yaml(
      "# comment\n"
      "base: &base\n"
      "  x: 1\n"
      "here:\n"
      "  <<: *base\n"
      "  list:\n"
      "  - a\n"
      "  - {b: 2,\n"
      "     c: 3}\n"
      "alias: *base\n",
      "f.yaml");
  EXPECT_EQ(document.line("/base"), 2);
  EXPECT_EQ(document.line("/base/x"), 3);
  EXPECT_EQ(document.line("/here"), 4);
  EXPECT_EQ(document.line("/here/x"), 5);
  EXPECT_EQ(document.line("/here/list"), 6);
  EXPECT_EQ(document.line("/here/list/0"), 7);
  EXPECT_EQ(document.line("/here/list/1/c"), 9);
  EXPECT_EQ(document.line("/alias/x"), 10);
}

using YamlFileTest = test::FolderTest;

TEST_F(YamlFileTest, IsReadAndNamed) {
  EXPECT_EQ(read_yaml(write("c.yaml", "\xEF\xBB\xBFnum_processes: 8\n")).root()["num_processes"],
            8);
  EXPECT_THROW((void)read_yaml(write("c.yaml", "a: 1\na: 1\n")), InputError);
  EXPECT_THROW((void)read_yaml(folder_), InputError);
  EXPECT_THROW((void)read_yaml(folder_ / "missing.yaml"), InputError);
}

}  // namespace
}  // namespace dstune
