#include "dstune/base/yaml.hpp"

#include <filesystem>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "dstune/base/file.hpp"

namespace dstune {
namespace {

using json::Value;
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

TEST(YamlTest, ReadsAConfiguration) {
  const Value found = parse_yaml(
      "# written by hand\n"
      "deepspeed_config:\n"
      "  zero_stage: 3\n"
      "  offload_param_device: none\n"
      "  gradient_clipping: 1.0\n"
      "machine_rank: 0\n"
      "main_training_function: main\n"
      "same_network: true\n"
      "tpu_env: []\n"
      "hosts:\n- a\n- {b: 1}\n"
      "text: |\n  two\n  lines\n",
      "f.yaml");
  EXPECT_EQ(found.dump(),
            R"({"deepspeed_config":{"zero_stage":3,"offload_param_device":"none",)"
            R"("gradient_clipping":1.0},"machine_rank":0,"main_training_function":"main",)"
            R"("same_network":true,"tpu_env":[],"hosts":["a",{"b":1}],"text":"two\nlines\n"})");
}

TEST(YamlTest, WordsMeanWhatTheyMeanToPyYaml) {
  for (const char* const yes : {"yes", "Yes", "YES", "on", "On", "true", "TRUE"})
    EXPECT_EQ(parse_yaml(yes, "f"), true) << yes;
  for (const char* const no : {"no", "No", "NO", "off", "OFF", "false", "False"})
    EXPECT_EQ(parse_yaml(no, "f"), false) << no;
  for (const char* const nothing : {"", "~", "null", "Null", "NULL", "# a comment", "---\n...\n"})
    EXPECT_EQ(parse_yaml(nothing, "f"), nullptr) << nothing;
  for (const char* const text : {"'yes'", "\"1\"", "! 1", "!!str 1"})
    EXPECT_TRUE(parse_yaml(text, "f").is_string()) << text;
  for (const char* const text :
       {"y",   "n",     "yEs", "12:30", "2026-01-31", ".inf", "-.inf", ".nan",
        "1e",  "e5",    ".",   "1.2.3", "0o10",       "08",   "0x",    "_1",
        "1 2", "1e999", "0b2", "+",     "None",       "--1",  "1-"})
    EXPECT_EQ(parse_yaml(text, "f"), text) << text;
}

TEST(YamlTest, NumbersAreThose) {
  const auto dump = [](const std::string& text) { return parse_yaml(text, "f").dump(); };
  EXPECT_EQ(dump("12"), "12");
  EXPECT_EQ(dump("-0"), "0");
  EXPECT_EQ(dump("+12"), "12");
  EXPECT_EQ(dump("1_000_000"), "1000000");
  EXPECT_EQ(dump("0x1F"), "31");
  EXPECT_EQ(dump("-0b11"), "-3");
  EXPECT_EQ(dump("010"), "8");
  EXPECT_EQ(dump("18446744073709551615"), "18446744073709551615");
  EXPECT_EQ(dump("18446744073709551616"), "1.8446744073709552e+19");
  EXPECT_EQ(dump("-9223372036854775809"), "-9.223372036854776e+18");
  EXPECT_EQ(dump("1.5"), "1.5");
  EXPECT_EQ(dump("1."), "1.0");
  EXPECT_EQ(dump("-.5"), "-0.5");
  EXPECT_EQ(dump("1e-4"), "0.0001") << "text for PyYAML; a number for people and YAML 1.2";
  EXPECT_EQ(dump("+5E8"), "500000000.0");
  EXPECT_EQ(dump("!!float 3"), "3.0");
  EXPECT_EQ(dump("!!int 3"), "3");
}

TEST(YamlTest, AliasesRepeatAndMergesTakeOver) {
  EXPECT_EQ(parse_yaml("a: &x [1, &y two]\nb: *x\nc: *y\n", "f").dump(),
            R"({"a":[1,"two"],"b":[1,"two"],"c":"two"})");
  EXPECT_EQ(parse_yaml("a: &x {p: 1, q: 2}\nb:\n  <<: *x\n  q: 3\n", "f")["b"].dump(),
            R"({"q":3,"p":1})");
  EXPECT_EQ(parse_yaml("<<: [{p: 1}, {p: 2, q: 2}]\n", "f").dump(), R"({"p":1,"q":2})");
  EXPECT_EQ(parse_yaml("? &k key\n: 1\nother: *k\n", "f")["other"], "key");
  EXPECT_EQ(parse_yaml("\"<<\": 1\n", "f")["<<"], 1);
}

TEST(YamlTest, RefusesWithTheLine) {
  EXPECT_THAT(yaml_refusal("a: 1\nb: 2\n\na: 3\n"),
              HasSubstr("f.yaml:4: the key a is given twice (first on line 1)"));
  EXPECT_THAT(yaml_refusal("a: 1\nb: [1, 2\nc: 3\n"), HasSubstr("this is no YAML"));
  EXPECT_THAT(yaml_refusal("a:\n  b: 1\n c: 2\n"),
              HasSubstr("f.yaml:3: column 2: this is no YAML"));
  EXPECT_THAT(yaml_refusal("a: 1\nb: *missing\n"), HasSubstr("f.yaml:2: column"));
  EXPECT_THAT(yaml_refusal("a: &x [*x]\n"), HasSubstr("f.yaml:1: the value contains itself"));
  EXPECT_THAT(yaml_refusal("a: 1\n---\nb: 1\n"),
              HasSubstr("f.yaml:2: a second document begins here"));
  EXPECT_THAT(yaml_refusal("a: !!python/object/apply:os.system ['x']\n"),
              HasSubstr("f.yaml:1: the tag tag:yaml.org,2002:python/object/apply:os.system"));
  EXPECT_THAT(yaml_refusal("a: 1\nb: !!int x\n"),
              HasSubstr("f.yaml:2: x does not go with the tag"));
  EXPECT_THAT(yaml_refusal("a: 1\n? [b]\n: 2\n"),
              HasSubstr("f.yaml:2: a key is a list or a mapping"));
  EXPECT_THAT(yaml_refusal("a: &x [1]\n*x : 2\n"),
              HasSubstr("f.yaml:2: a key is a list or a mapping"));
  EXPECT_THAT(yaml_refusal("a:\n  <<: 1\n"), HasSubstr("f.yaml:2: << has no mapping"));
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

TEST(YamlTest, FilesAreReadAndNamed) {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("dstune_yaml_{}", ::getpid());
  std::filesystem::create_directories(folder);
  const std::string path = folder / "c.yaml";
  write_file_atomically(path, "\xEF\xBB\xBFnum_processes: 8\n");
  EXPECT_EQ(read_yaml(path)["num_processes"], 8);
  write_file_atomically(path, "a: 1\na: 1\n");
  EXPECT_THROW((void)read_yaml(path), InputError);
  EXPECT_THROW((void)read_yaml(folder), InputError);
  EXPECT_THROW((void)read_yaml(folder / "missing.yaml"), InputError);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace dstune
