#include <chrono>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/json.hpp"
#include "folder_test.hpp"

namespace dstune::json {
namespace {

using namespace std::string_literals;
using namespace std::string_view_literals;
using testing::HasSubstr;

std::vector<Problem> hjson_problems_of(std::string_view text) {
  try {
    (void)Document::parse_hjson(text, "f.hjson");
  } catch (const InputError& error) {
    return error.problems();
  }
  return {};
}

TEST(HjsonDocumentTest, KnowsTheLineOfEveryValue) {
  const Document document = Document::parse_hjson(
      "# a config\n  a: 1\n  b: [\n    x y\n\n    4.5 # half\n    ,true, {c/d:\n null}\n  ]\n"
      "  text:\n  '''\n  one\n  two\n  '''\n  e: f\n",
      "f.hjson");
  // The last ones have the line of their nearest ancestor.
  const std::pair<const char*, int> lines[] = {
      {"", 2},     {"/a", 2},        {"/b", 3},     {"/b/0", 4}, {"/b/1", 6},        {"/b/2", 7},
      {"/b/3", 7}, {"/b/3/c~1d", 8}, {"/text", 11}, {"/e", 15},  {"/b/7/unknown", 3}};
  for (const auto& [pointer, line] : lines) EXPECT_EQ(document.line(pointer), line) << pointer;
  EXPECT_EQ(document.root()["text"], "one\ntwo");
}

TEST(HjsonDocumentTest, ByteOrderMarksAreSkippedAsInJson) {
  const std::string_view text = "\xEF\xBB\xBF\xEF\xBB\xBF{\"a\": 1}";
  EXPECT_EQ(Document::parse_hjson(text, "f.hjson").root(), Document::parse(text, "f.json").root());
}

TEST(HjsonDocumentTest, KeepsTheOrderOfKeys) {
  const Document document = Document::parse_hjson("z: 1\na: 2\nm: 3", "f.hjson");
  EXPECT_THAT(document.node().keys(), testing::ElementsAre("z", "a", "m"));
}

TEST(HjsonDocumentTest, NumbersAreThoseOfJson) {
  for (const std::string number :
       {"0", "-0", "18446744073709551615", "18446744073709551616", "-9223372036854775808",
        "-9223372036854775809", "0.1", "-1.5E+3", "1e-400", "4.7", "5e8"}) {
    const Value json = Document::parse("[" + number + "]", "f.json").root()[0];
    const Value hjson = Document::parse_hjson("[\n" + number + " # c\n]", "f.hjson").root()[0];
    EXPECT_EQ(json.type(), hjson.type()) << number;
    EXPECT_EQ(json.dump(), hjson.dump()) << number;
  }
}

TEST(HjsonDocumentTest, NamesEveryRepeatedKey) {
  const auto problems = hjson_problems_of("a: 1\ns: {\nb: 1\n\"b\": {x: 1}\n}\na: 2\n'\\u0061': 3");
  ASSERT_EQ(problems.size(), 3U);
  EXPECT_EQ(problems[0].pointer, "/s/b");
  EXPECT_EQ(problems[0].line, 4);
  EXPECT_THAT(problems[0].message, HasSubstr("first on line 3"));
  EXPECT_EQ(problems[1].pointer, "/a");
  EXPECT_EQ(problems[1].line, 6);
  EXPECT_EQ(problems[2].line, 7);
}

using HjsonFileTest = dstune::test::FolderTest;

TEST_F(HjsonFileTest, ItsNotationIsReadWhateverItsNameIs) {
  for (const char* const name : {"a.hjson", "a.json", "a.conf", "a"})
    EXPECT_EQ(Document::read(write(name, "# comment\na: b")).root()["a"], "b") << name;
  const Document forgotten = Document::read(write("a.json", "{\n\"a\": 1\n\"b\": [2,],\n}\n"));
  EXPECT_EQ(forgotten.root(), (Value{{"a", 1}, {"b", {2}}}));
  EXPECT_EQ(forgotten.line("/b"), 3);
  EXPECT_THROW((void)Document::read((folder_ / "none.hjson").string()), InputError);
}

TEST_F(HjsonFileTest, WhatIsNeitherIsRefusedAsWhatItLooksLike) {
  const auto refusal = [this](const std::string& name, const std::string& text) -> std::string {
    try {
      (void)Document::read(write(name, text));
    } catch (const InputError& error) {
      return error.problems().front().message;
    }
    return "";
  };
  // A key without quotes, or a comment behind '#': Hjson.
  EXPECT_THAT(refusal("a.json", "{\n  a: 1\n  b: ]\n}"),
              HasSubstr("begins so needs double quotes"));
  EXPECT_THAT(refusal("a.json", "// c\n/* d */ {\n# e\n\"a\": {b: c}\n}"),
              HasSubstr("part of a text without quotes"));
  EXPECT_THAT(refusal("a.json", "a: 1\na: 2\n"), HasSubstr("given twice"));
  // The words of JSON are for everything else.
  EXPECT_THAT(refusal("a.json", "{\"a\": 1, \"b\" 2}"), HasSubstr("expected ':' after the key"));
  EXPECT_THAT(refusal("a.json", "{\"a\": nan}"), HasSubstr("only finite numbers"));
  EXPECT_THAT(refusal("a.json", "{'a': True}"), HasSubstr("a key in double quotes"));
  EXPECT_THAT(refusal("a.json", "just words"), HasSubstr("expected a value but found just"));
  EXPECT_THAT(refusal("a.json", "/* open"), HasSubstr("the file ends inside a comment"));
  EXPECT_THAT(refusal("a.json", ""), HasSubstr("must hold a JSON document"));
  EXPECT_THAT(refusal("a.hjson", "{\"a\": nan}"), HasSubstr("part of a text without quotes"));
}

struct MalformedHjson {
  std::string_view text;
  int line;
  std::string_view message;
  std::string_view pointer = "";
};

class MalformedHjsonTest : public testing::TestWithParam<MalformedHjson> {};

TEST_P(MalformedHjsonTest, IsRefusedWithPlaceAndMend) {
  const auto problems = hjson_problems_of(GetParam().text);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(problems[0].file, "f.hjson");
  EXPECT_EQ(problems[0].line, GetParam().line);
  EXPECT_EQ(problems[0].pointer, GetParam().pointer);
  EXPECT_THAT(problems[0].message, HasSubstr(std::string(GetParam().message)));
}

INSTANTIATE_TEST_SUITE_P(
    Texts, MalformedHjsonTest,
    testing::Values(
        MalformedHjson{"", 1, "the file is empty"},
        MalformedHjson{"# nothing\n", 2, "the file is empty"},
        MalformedHjson{"{a: [\n1", 2, "inside the list that begins on line 1: close it with ]"},
        MalformedHjson{"{\na: 1\n", 3, "inside the object that begins on line 1: close it with }"},
        MalformedHjson{"{\na: b}\n", 3, "the } on line 2 is part of a text without quotes"},
        MalformedHjson{"a: [\nb, c],\n", 3, "the ] on line 2 is part of a text without quotes"},
        MalformedHjson{"a: 1\nb", 2, "ends after the key b: add ':' and a value"},
        MalformedHjson{"a: 1\nb: ", 2, "before the value of the key b: add it"},
        MalformedHjson{"hello world", 1,
                       "column 7: expected ':' after the key hello but found world"},
        MalformedHjson{"a: 1\nmy key: 2", 2, "a key with spaces in it needs double quotes"},
        MalformedHjson{"\"a\\n\" 1", 1, "column 7: expected the end of the file but found 1"},
        MalformedHjson{"{\"a\\n\" 1", 1, "column 8: expected ':' after the key but found 1"},
        MalformedHjson{": 1", 1,
                       "column 1: expected a key but found :; write \"\" for an empty key"},
        MalformedHjson{"{,}", 1, "column 2: expected a key but found ,; remove it"},
        MalformedHjson{"[1,,2]", 1, "column 4: expected a value but found ,"},
        MalformedHjson{"a: ]", 1, "a text that begins so needs double quotes"},
        MalformedHjson{"a: 1\n}", 2, "column 1: } closes nothing that is open: remove it"},
        MalformedHjson{"{a: [1}", 1,
                       "column 7: the list that begins on line 1 is closed with ], not"},
        MalformedHjson{"{\na: 1\n]", 3,
                       "the object that begins on line 1 is closed with }, not with ]"},
        MalformedHjson{"{} x", 1, "column 4: expected the end of the file but found x"},
        MalformedHjson{"\n'''a''': 1", 2, "expected the end of the file but found :"},
        MalformedHjson{"a: 1\n'''b''': 1", 2, "a text in ''' can not be a key"},
        MalformedHjson{"a: 1\n/* b", 2,
                       "inside the comment that begins on line 2: close it with */"},
        MalformedHjson{"a: \"b", 1,
                       "inside the text that begins on line 1: add the closing double"},
        MalformedHjson{"a: 'b", 1, "add the closing single quote"},
        MalformedHjson{"\na:\n'''b\n''", 4, "the text that begins on line 3: close it with '''"},
        MalformedHjson{"a: \"b\n\"", 1, "column 6: a line break or control character"},
        MalformedHjson{"a: \"\\q\"", 1, "column 5: a backslash in a text"},
        MalformedHjson{"a: \"\\", 1, "column 5: a backslash in a text"},
        MalformedHjson{"a: \"\\u12\"", 1, "column 9: \\u needs four hexadecimal digits"},
        MalformedHjson{"a: '\\u12", 1, "\\u needs four hexadecimal digits"},
        MalformedHjson{"a: \"\\ud800\"", 1, "half of a surrogate pair"},
        MalformedHjson{"a: \"\\udc00\"", 1, "half of a surrogate pair"},
        MalformedHjson{"a: \"\\ud800\\u0041\"", 1, "half of a surrogate pair"},
        MalformedHjson{"a: ä\x01", 1,
                       "column 5: the control character 0x01 stands in a text: write it"},
        MalformedHjson{"{}\x1B", 1, "found the control character 0x1B"},
        MalformedHjson{"a: \xC3\x28", 1, "column 4: byte 0xC3 is not UTF-8"},
        MalformedHjson{"a: [[0], 1\n-1e400 # c\n]", 2, "larger than any", "/a/2"},
        MalformedHjson{"a: \0"sv, 1, "byte 0x00"}));

double seconds_to_read(const std::string& text) {
  const auto begin = std::chrono::steady_clock::now();
  (void)hjson_problems_of(text);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

std::string repeated(std::string_view piece, std::size_t times) {
  std::string text;
  for (std::size_t i = 0; i < times; ++i) text += piece;
  return text;
}

TEST(HjsonDocumentTest, DeepNestingIsRefused) {
  EXPECT_TRUE(hjson_problems_of(repeated("[", 200) + repeated("]", 200)).empty());
  EXPECT_TRUE(hjson_problems_of("a:" + repeated("{a:", 199) + "1" + repeated("}", 199)).empty());
  for (const std::string& hostile :
       {repeated("[", 1'000'000), repeated("a:{", 350'000), repeated("[", 201),
        "a:" + repeated("{a:", 200), repeated("[{a:", 1000)}) {
    const auto problems = hjson_problems_of(hostile);
    ASSERT_EQ(problems.size(), 1U);
    EXPECT_THAT(problems[0].message, HasSubstr("nested more than 200 deep"));
  }
}

TEST(HjsonDocumentTest, RepeatedKeysEndTheReadingAtAHundred) {
  EXPECT_EQ(hjson_problems_of(repeated("a: 1\n", 100'000)).size(), 100U);
}

// A fraction of a second each; what is quadratic takes minutes at this size.
TEST(HjsonDocumentTest, TimeIsLinearInTheText) {
  struct Hostile {
    std::string begin, piece, end;
  };
  const std::string long_key(100'000, 'k');
  const std::vector<Hostile> hostile = {
      {"[", "1,", "1]"},                     // one line of many numbers
      {"[", "'''a''' ", "]"},                // the column of each matters
      {"[", "a\n", "]"},                     // many lines
      {"[", "1/", "2\n]"},                   // many ends of a word that are none
      {"a: '''", "\n   ''", "'''"},          // quotes that close nothing
      {"a: ", "/", "\n"},                    // likewise, slashes
      {"", "/**/", "a: 1"},                  // comments
      {"a: ", "9", ""},                      // a number of that many digits
      {"\"", "x", "\" 1"},                   // a root that could be a key
      {"", "x", " y"},                       // likewise, without quotes
      {"{" + long_key + ": [", "0,", "]}"},  // a long pointer to each element
      {"a: \"", "\\u00e4", "\""},            // escapes
  };
  constexpr std::size_t size = 2'000'000;
  for (const Hostile& kind : hostile) {
    SCOPED_TRACE(kind.begin.substr(0, 10) + kind.piece);
    const std::string text = kind.begin + repeated(kind.piece, size / kind.piece.size()) + kind.end;
    EXPECT_LT(seconds_to_read(text), 10.0);
  }
}

TEST(HjsonDocumentTest, AGiantTextIsRead) {
  const std::string giant(50'000'000, 'x');
  for (const std::string& text : {"a: \"" + giant + "\"", "a: '''" + giant + "'''", "a: " + giant})
    EXPECT_EQ(Document::parse_hjson(text, "f.hjson").root()["a"].get_ref<const std::string&>(),
              giant);
}

// Every prefix of a document that holds everything is a document or is refused.
TEST(HjsonDocumentTest, TruncatedDocumentsAreSafe) {
  const std::string text =
      "# c\na: /* c */ 'b\\u00e4\\ud834\\udd1e' // c\n\"k\": [1, -2.5e3 x\n{q: null}, true]\n"
      "m:\n  '''\n  ä\n  ''b''\n  '''\nlast: text # to the end\n";
  EXPECT_TRUE(hjson_problems_of(text).empty());
  std::size_t refused = 0;
  for (std::size_t length = 0; length < text.size(); ++length)
    refused += hjson_problems_of(text.substr(0, length)).size();
  EXPECT_GT(refused, text.size() / 2);
  EXPECT_LT(refused, text.size());
}

}  // namespace
}  // namespace dstune::json
