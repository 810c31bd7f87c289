#include <gtest/gtest.h>

#include "sections/sections.hpp"

namespace dstune {
namespace {

/// The document with its dstune.variables replaced.
json::Value replaced(const char* text, json::Problems& problems) {
  const auto document = json::Document::parse(text, "space.json");
  const auto section = document.node().find("dstune");
  const auto variables = section ? section->find("variables") : std::nullopt;
  return replace_variables(document.node(), variables ? &*variables : nullptr, problems);
}

TEST(VariablesTest, KeepTypesAndFillTexts) {
  json::Problems problems;
  const auto value = replaced(R"({"dstune": {"variables": {"FOO": "bar", "n": 7, "T": true}},
      "a": "$FOO", "b": ["$N", "x", 5], "c": {"p": "$NVME_PATH/x", "q": "pre/$FOO/post"},
      "d": "$t", "e": "$n$t", "f": "5 $ each"})",
                              problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(value["a"], "bar");
  EXPECT_EQ(value["b"], json::Value::parse(R"([7, "x", 5])"));
  EXPECT_EQ(value["c"]["p"], "$NVME_PATH/x");
  EXPECT_EQ(value["c"]["q"], "pre/bar/post");
  EXPECT_EQ(value["d"], true);
  EXPECT_EQ(value["e"], "7true");
  EXPECT_EQ(value["f"], "5 $ each");
}

TEST(VariablesTest, ListsMakeCandidates) {
  json::Problems problems;
  const auto value = replaced(R"({"dstune": {"variables": {"L": [1, 2]}},
      "a": "$L", "b": [0, "$L", 3], "optimizer": {"params": {"betas": ["$L", [3, 4]]}}})",
                              problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(value["a"], json::Value::parse("[1, 2]"));
  EXPECT_EQ(value["b"], json::Value::parse("[0, 1, 2, 3]"));
  EXPECT_EQ(value["optimizer"]["params"]["betas"], json::Value::parse("[[1, 2], [3, 4]]"));
}

TEST(VariablesTest, LeaveSomeKeysAlone) {
  json::Problems problems;
  const auto value =
      replaced(R"({"dstune": {"variables": {"A": "$B"}, "training_command": "x $CONFIG"},
      "zero_optimization": {"offload_param": {"nvme_path": "$SCRATCH"}}})",
               problems);
  EXPECT_TRUE(problems.empty());
  EXPECT_EQ(value["dstune"]["training_command"], "x $CONFIG");
  EXPECT_EQ(value["zero_optimization"]["offload_param"]["nvme_path"], "$SCRATCH");
}

TEST(VariablesTest, UnknownOnesAreProblemsWithAPlace) {
  json::Problems problems;
  replaced(
      "{\"dstune\": {\"variables\": {\"BUCKET\": 1}},\n\"a\": \"$BUCKTE\",\n\"b\": [1, \"x$C\"]}",
      problems);
  ASSERT_EQ(problems.all().size(), 2U);
  EXPECT_EQ(problems.all()[0].pointer, "/a");
  EXPECT_EQ(problems.all()[0].line, 2);
  EXPECT_NE(problems.all()[0].message.find("did you mean $BUCKET"), std::string::npos);
  EXPECT_EQ(problems.all()[1].pointer, "/b/1");
  EXPECT_EQ(problems.all()[1].line, 3);
}

TEST(VariablesTest, BadDefinitionsAreProblems) {
  json::Problems problems;
  replaced(R"({"dstune": {"variables": {"a": [1], "A": 2, "b c": 3}}, "x": "n$a"})", problems);
  ASSERT_EQ(problems.all().size(), 3U);
  EXPECT_EQ(problems.all()[0].pointer, "/dstune/variables/A");
  EXPECT_EQ(problems.all()[1].pointer, "/dstune/variables/b c");
  EXPECT_EQ(problems.all()[2].pointer, "/x");
}

}  // namespace
}  // namespace dstune
