#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/json.hpp"

namespace dstune::json {
namespace {

using testing::HasSubstr;

/// The one problem that reading member "v" of `text` gives, or a text without problems.
template <class Read>
std::string problem_text(const std::string& text, Read read) {
  const Document document = Document::parse("{\n\"v\": " + text + "}", "f.json");
  Problems problems;
  if (read(*document.node().find("v"), problems)) return "accepted";
  EXPECT_EQ(problems.all().size(), 1U);
  const Problem& problem = problems.all().at(0);
  EXPECT_EQ(problem.file, "f.json");
  EXPECT_EQ(problem.pointer, "/v");
  EXPECT_EQ(problem.line, 2);
  return problem.message;
}

std::string integer(const std::string& text, std::int64_t low = INT64_MIN,
                    std::int64_t high = INT64_MAX) {
  return problem_text(text, [=](const Node& node, Problems& problems) {
    return node.integer(problems, low, high).has_value();
  });
}

TEST(NodeTest, IntegersAreExact) {
  EXPECT_EQ(integer("4.7"), "expected an integer, got 4.7");
  EXPECT_EQ(integer("-1", 0), "expected an integer of at least 0, got -1");
  EXPECT_EQ(integer("4", 0, 3), "expected an integer from 0 to 3, got 4");
  EXPECT_EQ(integer("4", INT64_MIN, 3), "expected an integer of at most 3, got 4");
  EXPECT_EQ(integer("true"), "expected an integer, got true");
  EXPECT_EQ(integer("\"5\""), "expected an integer, got \"5\"");
  EXPECT_EQ(integer("null"), "expected an integer, got null");
  EXPECT_EQ(integer("[5]"), "expected an integer, got a list");
  EXPECT_EQ(integer("{}"), "expected an integer, got an object");
  EXPECT_THAT(integer("9223372036854775808"), HasSubstr("got 9223372036854775808"));
  EXPECT_THAT(integer("18446744073709551615", 0), HasSubstr("got 18446744073709551615"));
  EXPECT_THAT(integer("99999999999999999999"), HasSubstr("expected an integer"));
  EXPECT_THAT(integer("-9223372036854775809"), HasSubstr("expected an integer"));
  EXPECT_THAT(integer("1e19"), HasSubstr("expected an integer"));
  EXPECT_EQ(integer("9223372036854775807"), "accepted");
  EXPECT_EQ(integer("-9223372036854775808"), "accepted");
  EXPECT_EQ(integer("5e8", 0), "accepted");
  EXPECT_EQ(integer("-0.0", 0), "accepted");
}

TEST(NodeTest, IntegersKeepTheirValue) {
  const Document document = Document::parse("[5e8, -3, 9007199254740993]", "f.json");
  Problems problems;
  std::vector<std::int64_t> values;
  for (const Node& node : document.node().elements())
    values.push_back(node.integer(problems).value());
  EXPECT_THAT(values, testing::ElementsAre(500'000'000, -3, 9007199254740993));
  EXPECT_TRUE(problems.empty());
}

TEST(NodeTest, NumbersBooleansAndTextsAreStrict) {
  const auto number = [](const Node& node, Problems& problems) {
    return node.number(problems, 0, 1).has_value();
  };
  EXPECT_EQ(problem_text("1.5", number), "expected a number from 0 to 1, got 1.5");
  EXPECT_EQ(problem_text("true", number), "expected a number from 0 to 1, got true");
  EXPECT_EQ(problem_text("\"0.5\"", number), "expected a number from 0 to 1, got \"0.5\"");
  EXPECT_EQ(problem_text("1", number), "accepted");
  const auto boolean = [](const Node& node, Problems& problems) {
    return node.boolean(problems).has_value();
  };
  EXPECT_EQ(problem_text("1", boolean), "expected true or false, got 1");
  EXPECT_EQ(problem_text("\"yes\"", boolean), "expected true or false, got \"yes\"");
  EXPECT_EQ(problem_text("false", boolean), "accepted");
  const auto string = [](const Node& node, Problems& problems) {
    return node.string(problems).has_value();
  };
  EXPECT_EQ(problem_text("1", string), "expected a text in double quotes, got 1");
  EXPECT_EQ(problem_text("\"\"", string), "accepted");
  const auto object = [](const Node& node, Problems& problems) {
    return node.expect_object(problems);
  };
  EXPECT_EQ(problem_text("[]", object), "expected an object, got a list");
  EXPECT_EQ(problem_text("\"" + std::string(100, 'x') + "\"", object),
            "expected an object, got a long text");
}

TEST(NodeTest, WalksMembersAndElements) {
  const Document document = Document::parse(R"({"a/b": [10, {"c": 1}]})", "f.json");
  const Node list = *document.node().find("a/b");
  EXPECT_EQ(list.pointer(), "/a~1b");
  ASSERT_EQ(list.elements().size(), 2U);
  EXPECT_EQ(list.elements()[1].find("c")->pointer(), "/a~1b/1/c");
  EXPECT_FALSE(list.find("c"));
  EXPECT_FALSE(document.node().find("absent"));
  EXPECT_TRUE(list.keys().empty());
  EXPECT_TRUE(document.node().elements().empty());
}

TEST(NodeTest, UnknownKeysNameTheNearest) {
  const Document document = Document::parse(
      "{\"stgae\": 1,\n\"reduce_buckt_size\": 2,\n\"xyz\": 3, \"stage\": 4}", "f.json");
  Problems problems;
  document.node().refuse_unknown_keys(problems, {"stage", "reduce_bucket_size", "ab"});
  ASSERT_EQ(problems.all().size(), 3U);
  EXPECT_EQ(problems.all()[0].message, "unknown key: did you mean \"stage\"?");
  EXPECT_EQ(problems.all()[1].message, "unknown key: did you mean \"reduce_bucket_size\"?");
  EXPECT_EQ(problems.all()[1].line, 2);
  EXPECT_EQ(problems.all()[2].message, "unknown key: remove it");
  EXPECT_EQ(problems.all()[2].pointer, "/xyz");
}

TEST(NodeTest, ProblemsAreThrownTogether) {
  Problems problems;
  EXPECT_NO_THROW(problems.check());
  problems.add({"f", "", 1, "a"});
  problems.add({"f", "", 2, "b"});
  EXPECT_THROW(problems.check(), InputError);
}

TEST(NearestTest, StaysWithinTwoEditsAndWithinOneOfShortWords) {
  EXPECT_EQ(nearest("wrad", {"ward", "world"}), "ward");
  EXPECT_EQ(nearest("micro_batch", {"macro_batch", "micro_batches"}), "macro_batch");
  EXPECT_EQ(nearest("zero_optimisaton", {"zero_optimization"}), "zero_optimization");
  EXPECT_EQ(nearest("zero_optimisatn", {"zero_optimization"}), std::nullopt);
  EXPECT_EQ(nearest("stage", {"storage_x", "page"}), std::nullopt);
  EXPECT_EQ(nearest("fp61", {"bf16", "fp16"}), "fp16");
  EXPECT_EQ(nearest("fp32", {"fp16"}), std::nullopt);
  EXPECT_EQ(nearest("fp16_x", {"fp16"}), std::nullopt);
  EXPECT_EQ(nearest("optimm", {"optim"}), "optim");
  EXPECT_EQ(nearest("abc", {"xyz"}), std::nullopt);
  EXPECT_EQ(nearest("lr", {"wd", "eps"}), std::nullopt);
  EXPECT_EQ(nearest("", {"a"}), std::nullopt);
}

}  // namespace
}  // namespace dstune::json
