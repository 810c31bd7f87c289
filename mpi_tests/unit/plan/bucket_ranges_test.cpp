#include <gtest/gtest.h>

#include "plan_fixtures.hpp"
#include "zero/gradients.hpp"

namespace dstune::plan {
namespace {

class BucketRangesTest : public testing::TestWithParam<std::int64_t> {};

TEST_P(BucketRangesTest, CutWholeParametersInOrderOfArrival) {
  const ParameterTable table(test::tiny_gpt2());
  const Layout layout(table, 2, {2, 0});
  const std::int64_t size = GetParam();
  int last = static_cast<int>(table.all().size());
  for (const BucketRange& range : cut_into_buckets(layout, size)) {
    EXPECT_EQ(range.last, last);
    last = range.first;
    const std::int64_t elements = range.end - range.begin;
    if (range.alone) {
      EXPECT_EQ(range.last - range.first, 1);
      EXPECT_GT(elements, size);
    } else {
      EXPECT_LE(elements, size);
    }
    // Greedy: the parameter before it would not have fitted.
    if (range.first > 0) {
      EXPECT_GT(elements + table.all()[static_cast<std::size_t>(range.first) - 1].elements(), size);
    }
  }
  EXPECT_EQ(last, 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, BucketRangesTest, testing::Values(1, 10, 99, 370, 1000, 5000));

TEST(BucketRangesTest, OneBucketHoldsEverythingWhereItIsLargeEnough) {
  const ParameterTable table(test::tiny_gpt2());
  const Layout layout(table, 2, {2, 0});
  const auto ranges = cut_into_buckets(layout, table.total_elements());
  ASSERT_EQ(ranges.size(), 1U);
  EXPECT_FALSE(ranges[0].alone);
  EXPECT_EQ(cut_into_buckets(layout, table.total_elements() - 1).size(), 2U);
}

TEST(LayoutTest, PadsPartitionsToTwoElementsARank) {
  const ParameterTable table(test::tiny_gpt2());
  const std::int64_t total = table.total_elements();
  for (int group_size = 2; group_size <= 4; ++group_size) {
    const Layout layout(table, 1, {group_size, group_size - 1});
    EXPECT_EQ(layout.resident_elements() % (2 * group_size), 0);
    EXPECT_LT(layout.resident_elements() - total, 2 * group_size);
    EXPECT_EQ(layout.own_offset() + layout.own_elements(), layout.resident_elements());
  }
}

TEST(LayoutTest, ShardsEveryHuggingFaceParameterByItself) {
  for (const ModelSpec& model : {test::tiny_gpt2(), test::tiny_llama()}) {
    const ParameterTable table(model);
    const Layout layout(table, 3, {4, 1});
    std::int64_t offset = 0;
    std::int64_t elements = 0;
    for (int index = 0; index < layout.num_parameters(); ++index) {
      EXPECT_EQ(layout.shard_offset(index), offset);
      for (int piece = layout.piece_begin(index); piece < layout.piece_begin(index + 1); ++piece) {
        const Piece& whole = layout.pieces()[static_cast<std::size_t>(piece)];
        EXPECT_EQ(layout.parameter(index).offset + whole.first, elements);
        EXPECT_EQ(layout.piece_shard_elements(piece), (whole.elements + 3) / 4);
        offset += layout.piece_shard_elements(piece);
        elements += whole.elements;
      }
    }
    EXPECT_EQ(layout.resident_elements(), offset);
    EXPECT_EQ(elements, table.total_elements());
  }
}

TEST(LayoutTest, CutsMergedMatricesIntoHuggingFaces) {
  ModelSpec model = test::tiny_llama();
  model.num_kv_heads = 2;
  const ParameterTable table(model);
  const std::vector<Piece> pieces = cut_into_pieces(table);
  const int qkv = table.find(2, ParameterRole::qkv_weight);
  const int fc = table.find(2, ParameterRole::fc_weight);
  std::vector<std::int64_t> rows;
  for (const Piece& piece : pieces)
    if (piece.parameter == qkv || piece.parameter == fc) rows.push_back(piece.elements / 10);
  EXPECT_EQ(rows, (std::vector<std::int64_t>{24, 12, 12, 37, 37}));
}

}  // namespace
}  // namespace dstune::plan
