#include <gtest/gtest.h>

#include "dstune/space/search_space.hpp"
#include "sections/products.hpp"

namespace dstune {
namespace {

json::Value value(const char* text) {
  return json::Value::parse(text);
}

TEST(CanonicalNameTest, FollowsDocumentOrder) {
  const auto config = value(R"({"zero_optimization": {"stage": 1, "reduce_bucket_size": 5e7,
      "allgather_bucket_size": 1e9}, "train_micro_batch_size_per_gpu": 11,
      "gradient_accumulation_steps": 1})");
  const std::vector<std::string> keys = {"allgather_bucket_size", "reduce_bucket_size"};
  EXPECT_EQ(canonical_name(config, keys, "z1_", false), "z1_rbs5.0e+07_abs1.0e+09_tmbspg11_gas1");
  EXPECT_EQ(canonical_name(config, keys, "z1_", true), "z1_rbs_abs_tmbspg_gas");
}

TEST(CanonicalNameTest, WritesBooleansAsLetters) {
  const auto config = value(R"({"zero_optimization": {"stage": 2, "overlap_comm": true,
      "reduce_scatter": false, "reduce_bucket_size": 5e8, "allgather_bucket_size": 5e7,
      "contiguous_gradients": true}, "train_micro_batch_size_per_gpu": 4,
      "gradient_accumulation_steps": 2})");
  EXPECT_EQ(canonical_name(config,
                           {"overlap_comm", "reduce_scatter", "reduce_bucket_size",
                            "allgather_bucket_size", "contiguous_gradients"},
                           "z2_", false),
            "z2_ocT_rsF_rbs5.0e+08_abs5.0e+07_cgT_tmbspg4_gas2");
}

TEST(CanonicalNameTest, HasAWordForNothing) {
  EXPECT_EQ(canonical_name(value(R"({"zero_optimization": {"stage": 0}})"), {}, "z0_", false),
            "z0_exp");
  EXPECT_EQ(canonical_name(value("{}"), {}, "", false), "exp");
}

TEST(CanonicalNameTest, WritesOtherValuesAsPythonDoes) {
  EXPECT_EQ(canonical_name(value(R"({"fp16": {"enabled": true, "loss_scale": 0},
                "train_micro_batch_size_per_gpu": 2})"),
                           {"enabled", "loss_scale"}, "", false),
            "eT_ls0_tmbspg2");
  EXPECT_EQ(canonical_name(value(R"({"train_micro_batch_size_per_gpu": [8, 16]})"), {}, "", false),
            "tmbspg[8, 16]");
  EXPECT_EQ(canonical_name(value(R"({"a__b": 1e-5, "c": null, "d": 9001})"), {"a__b", "c", "d"}, "",
                           false),
            "ab1e-05_cNone_d9.0e+03");
}

TEST(CanonicalNameTest, SpellsOffloadOutWhateverTheKeys) {
  const auto config = value(R"({"zero_optimization": {"offload_param": null,
      "offload_optimizer": {"device": "cpu", "pin_memory": true, "buffer_size": 1e8}}})");
  EXPECT_EQ(canonical_name(config, {}, "z3_", false), "z3_op_None_oo_dcpu_pmT_bs1.0e+08");
  EXPECT_EQ(canonical_name(config, {}, "z3_", true), "z3_op_oo");
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
