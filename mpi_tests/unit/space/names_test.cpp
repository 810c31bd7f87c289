#include <gtest/gtest.h>

#include "dstune/space/search_space.hpp"
#include "sections/products.hpp"

namespace dstune {
namespace {

TEST(CanonicalNameTest, WritesValuesAsPythonDoes) {
  const auto config = json::Value::parse(R"({"a__b": 1e-5, "c": null, "d": 9001})");
  EXPECT_EQ(canonical_name(config, {"a__b", "c", "d"}, "", false), "ab1e-05_cNone_d9.0e+03");
}

TEST(FolderSafeTest, KeepsWhatFoldersMayHave) {
  EXPECT_EQ(folder_safe("z1_rbs5.0e+07_gas1"), "z1_rbs5.0e+07_gas1");
  EXPECT_EQ(folder_safe("b[0.9, 0.95]/../x"), "b-0.9--0.95--..-x");
}

TEST(FolderSafeTest, CutsLongNamesApart) {
  const std::string long_name(300, 'a');
  EXPECT_LE(folder_safe(long_name + "b").size(), 200U);
  EXPECT_NE(folder_safe(long_name + "b"), folder_safe(long_name + "c"));
}

}  // namespace
}  // namespace dstune
