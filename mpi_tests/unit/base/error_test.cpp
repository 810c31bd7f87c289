#include "dstune/base/error.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace dstune {
namespace {

using testing::HasSubstr;

TEST(ProblemTest, NamesThePlaceItHas) {
  EXPECT_EQ((Problem{"space.json", "/zero_optimization/stage", 12, "wrong"}).text(),
            "space.json:12: /zero_optimization/stage: wrong");
  EXPECT_EQ((Problem{"space.json", "", 0, "wrong"}).text(), "space.json: wrong");
  EXPECT_EQ((Problem{"", "", 3, "wrong"}).text(), "line 3: wrong");
  EXPECT_EQ((Problem{"", "", 0, "wrong"}).text(), "wrong");
}

TEST(InputErrorTest, KeepsAndNamesEveryProblem) {
  const InputError error({{"a", "", 1, "first"}, {"a", "/k", 2, "second"}});
  EXPECT_EQ(error.problems().size(), 2U);
  EXPECT_STREQ(error.what(), "a:1: first\na:2: /k: second");
}

TEST(OutOfMemoryTest, NamesBothFigures) {
  EXPECT_STREQ(OutOfMemory(2048, 1024, "activations").what(),
               "activations: 2.00 KiB asked for, 1.00 KiB available");
  EXPECT_STREQ(OutOfMemory(0, 1024, "a launch").what(), "a launch: 1.00 KiB available");
}

TEST(RequireTest, ThrowsAtTheCallersLine) {
  EXPECT_NO_THROW(require(true, "fine"));
  const int line = __LINE__ + 2;
  try {
    require(false, "one is two");
    FAIL() << "require() let a broken invariant pass";
  } catch (const LogicError& error) {
    EXPECT_THAT(error.what(), HasSubstr("error_test.cpp:" + std::to_string(line)));
    EXPECT_THAT(error.what(), HasSubstr("one is two"));
  }
}

TEST(RequireTest, AnInputErrorWithoutProblemsIsABrokenInvariant) {
  EXPECT_THROW(InputError({}), LogicError);
}

}  // namespace
}  // namespace dstune
