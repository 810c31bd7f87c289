#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/json.hpp"

namespace dstune::json {
namespace {

using testing::HasSubstr;

std::vector<Problem> problems_of(std::string_view text) {
  try {
    (void)Document::parse(text, "f.json");
  } catch (const InputError& error) {
    return error.problems();
  }
  return {};
}

TEST(DocumentTest, KnowsTheLineOfEveryValue) {
  const Document document = Document::parse(
      "{\n  \"a\": 1\n,\n  \"b\": [\n    4.5\n    ,true,\n    {\"c/d\":\n null}\n  ],\n"
      "  \"e\": \"x\"\n}\n",
      "f.json");
  // The last ones have the line of their nearest ancestor.
  const std::pair<const char*, int> lines[] = {
      {"", 1},     {"/a", 2},        {"/b", 4},  {"/b/0", 5},         {"/b/1", 6},
      {"/b/2", 7}, {"/b/2/c~1d", 8}, {"/e", 10}, {"/b/7/unknown", 4}, {"/nothing", 1}};
  for (const auto& [pointer, line] : lines) EXPECT_EQ(document.line(pointer), line) << pointer;
}

TEST(DocumentTest, NumbersBeforeWindowsLineEndsKeepTheirLine) {
  const Document document = Document::parse("[\r\n1\r\n,\r\n2\r\n]", "f.json");
  EXPECT_EQ(document.line("/0"), 2);
  EXPECT_EQ(document.line("/1"), 4);
}

TEST(DocumentTest, KeepsTheOrderOfKeys) {
  const Document document = Document::parse(R"({"z": 1, "a": 2, "m": 3})", "f.json");
  EXPECT_THAT(document.node().keys(), testing::ElementsAre("z", "a", "m"));
}

TEST(DocumentTest, ReadsCommentsAndAByteOrderMark) {
  const Document document =
      Document::parse("\xEF\xBB\xBF// first\n/* second\n */ {\"a\": 7 // third\n}", "f.json");
  EXPECT_EQ(document.root()["a"], 7);
  EXPECT_EQ(document.line("/a"), 3);
}

TEST(DocumentTest, NamesEveryRepeatedKey) {
  const auto problems =
      problems_of("{\"a\": 1,\n\"s\": {\"b\": 1,\n\"b\": {\"x\": 1}},\n\"a\": 2,\n\"a\": 3}");
  ASSERT_EQ(problems.size(), 3U);
  EXPECT_EQ(problems[0].pointer, "/s/b");
  EXPECT_EQ(problems[0].line, 3);
  EXPECT_THAT(problems[0].message, HasSubstr("first on line 2"));
  EXPECT_EQ(problems[1].pointer, "/a");
  EXPECT_EQ(problems[1].line, 4);
  EXPECT_EQ(problems[2].line, 5);
}

TEST(DocumentTest, KeysThatDifferOnlyByEscapeAreTheSame) {
  EXPECT_EQ(problems_of(R"({"a": 1, "\u0061": 2})").size(), 1U);
}

struct Malformed {
  std::string_view text;
  int line;
  std::string_view message;
  std::string_view pointer = "";
};

class MalformedTest : public testing::TestWithParam<Malformed> {};

TEST_P(MalformedTest, IsRefusedWithPlaceAndMend) {
  const auto problems = problems_of(GetParam().text);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].file, "f.json");
  EXPECT_EQ(problems[0].line, GetParam().line);
  EXPECT_EQ(problems[0].pointer, GetParam().pointer);
  EXPECT_THAT(problems[0].message, HasSubstr(std::string(GetParam().message)));
  EXPECT_THAT(problems[0].message, testing::Not(HasSubstr("exception")));
  EXPECT_THAT(problems[0].message, testing::Not(HasSubstr("parsing")));
}

using namespace std::string_view_literals;
INSTANTIATE_TEST_SUITE_P(
    Texts, MalformedTest,
    testing::Values(
        Malformed{"", 1, "the file is empty"}, Malformed{" \n ", 2, "the file is empty"},
        Malformed{"// nothing", 1, "before its value"},
        Malformed{"{\n\"a\": [1,\n2", 3, "inside the list that begins on line 2: close it with ]"},
        Malformed{"{\"a\": 1\n", 2, "inside the object that begins on line 1: close it with }"},
        Malformed{"{\"a\"", 1, "inside the object"},
        Malformed{"{\"a\": tr", 1, "inside the object"},
        Malformed{"{\"a\": \"b", 1, "inside a text"}, Malformed{"{} /* a", 1, "inside a comment"},
        Malformed{"{\n \"a\": 1,\n}", 3, "column 1: there is a comma before }: remove it"},
        Malformed{"[1,\n2 3]", 2, "column 3: expected ',' or ']' but found 3"},
        Malformed{"{\"a\" 1}", 1, "expected ':' after the key but found 1"},
        Malformed{"{\"a\": 1 \"b\": 2}", 1, "expected ',' or '}'"},
        Malformed{"{a: 1}", 1, "column 2: expected a key in double quotes or } but found a"},
        Malformed{"{\"a\": NaN}", 1, "but found NaN; only finite numbers"},
        Malformed{"[\n-Infinity]", 2, "but found -Infinity; only finite numbers"},
        Malformed{"[Infinity]", 1, "only finite numbers"},
        Malformed{"[True]", 1, "write true and false in small letters"},
        Malformed{"[None]", 1, "write null"}, Malformed{"['a']", 1, "double quotes"},
        Malformed{"[01]", 1, "01; this is no JSON number"}, Malformed{"[1.]", 1, "no JSON number"},
        Malformed{"[word]", 1, "found word; write texts in double quotes"},
        Malformed{"{} {}", 1, "column 4: expected the end of the file but found {"},
        Malformed{"[\"a\nb\"]", 1, "line break or control character"},
        Malformed{"[\"\\q\"]", 1, "a backslash in a text"},
        Malformed{"[\"\\u12\"]", 1, "four hexadecimal digits"},
        Malformed{"[\"\\ud800\"]", 1, "surrogate"},
        Malformed{"[/x]", 1, "a comment is not complete"},
        Malformed{"[\n\"\xC3\x28\"]", 2, "column 2: byte 0xC3 is not UTF-8"},
        Malformed{"[\"\xED\xA0\x80\"]", 1, "not UTF-8"},
        Malformed{"[\"\xC0\x80\"]", 1, "not UTF-8"}, Malformed{"[\"\xF5\"]", 1, "not UTF-8"},
        Malformed{"{\"a\": [1,\n1e400\n]}", 2, "larger than any", "/a/1"},
        Malformed{"{}\0{"sv, 1, "byte 0x00"}, Malformed{"[\"\xC3\xA4\", 1.2.3]", 1, "column 10"}));

TEST(DocumentTest, DeepNestingIsRefusedAndDoesNotOverflowTheStack) {
  const std::string fine = std::string(200, '[') + std::string(200, ']');
  EXPECT_TRUE(problems_of(fine).empty());
  for (const std::string& hostile : {std::string(2'000'000, '['), std::string(201, '[')}) {
    const auto problems = problems_of(hostile);
    ASSERT_EQ(problems.size(), 1U);
    EXPECT_THAT(problems[0].message, HasSubstr("nested more than 200 deep"));
  }
}

TEST(DocumentTest, ManyKeysTakeLinearTime) {
  std::string text = "{";
  constexpr int count = 200'000;
  for (int i = 0; i < count; ++i) text += "\"key" + std::to_string(i) + "\": 1,\n";
  text += "\"last\": 2}";
  EXPECT_EQ(Document::parse(text, "f.json").root().size(), count + 1U);
}

TEST(DocumentTest, MoreKeysOrElementsThanTheLimitAreRefusedWithTheirLine) {
  struct Large {
    const char* text;
    std::size_t values;
    int line;
  };
  for (const auto& [text, values, line] :
       {Large{"{\"a\": [\n1,\n2,\n3]}", 4, 4}, Large{"{\"a\": 1,\n\"b\": 2,\n\"c\": 3}", 3, 3}}) {
    for (const auto parse : {&Document::parse, &Document::parse_hjson}) {
      EXPECT_NO_THROW((void)parse(text, "f.json", {.values = values}));
      try {
        (void)parse(text, "f.json", {.values = values - 1});
        FAIL();
      } catch (const InputError& error) {
        ASSERT_EQ(error.problems().size(), 1U);
        EXPECT_EQ(error.problems()[0].line, line);
        EXPECT_THAT(error.what(), HasSubstr(fmt::format("more than {} keys", values - 1)));
      }
    }
  }
}

TEST(DocumentTest, AMissingFileIsAProblemWithItsPath) {
  EXPECT_THAT(
      [] { (void)Document::read("/nowhere/space.json"); },
      testing::ThrowsMessage<InputError>(testing::AllOf(
          testing::StartsWith("/nowhere/space.json: "), HasSubstr("No such file or directory"))));
}

}  // namespace
}  // namespace dstune::json
