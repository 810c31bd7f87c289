/// The catalogue of operations. That kernels access what it says is tested with the executor.

#include <set>

#include <gtest/gtest.h>

#include "dstune/plan/operations/operation.hpp"
#include "plan_fixtures.hpp"

namespace dstune {
namespace {

TEST(OperationsTest, NamesAreNeverTheSame) {
  std::set<std::string_view> names;
  for (const OperationTraits& traits : operation_traits) names.insert(traits.name);
  EXPECT_EQ(names.size(), operation_traits.size());
}

TEST(OperationsTest, WhatIsNoOrderTakesTime) {
  for (const OperationTraits& traits : operation_traits)
    EXPECT_EQ(traits.work.has_value(), traits.kind != OperationKind::order) << traits.name;
}

TEST(OperationsTest, TraitsAreThoseOfTheAlternative) {
  EXPECT_EQ(traits_of(op::Wait{}).name, "wait");
  EXPECT_EQ(kind_of(op::Quantize{}), OperationKind::arithmetic);
  EXPECT_EQ(kind_of(op::WriteDisk{}), OperationKind::disk);
  EXPECT_EQ(kind_of(op::ClipFactor{}), OperationKind::exchange);
}

TEST(OperationsTest, VisitsTheKindsThatAreAskedFor) {
  using enum OperationKind;
  int kernels = 0;
  int others = 0;
  for (const Operation& operation : {Operation(op::Add{}), Operation(op::AllGather{}),
                                     Operation(op::Mark{}), Operation(op::Copy{})}) {
    visit_kind<arithmetic>([&](const auto&) { ++kernels; }, operation);
    visit_kind<order, collective>([&](const auto&) { ++others; }, operation);
  }
  EXPECT_EQ(kernels, 1);
  EXPECT_EQ(others, 2);
}

TEST(OperationsTest, ACollectiveTellsWhatItMoves) {
  const RankRange half{1, 2, 2};
  const auto gather = collective_of(op::AllGather{{1, 5}, {2, 7}, 10, half}, 4);
  ASSERT_TRUE(gather);
  EXPECT_EQ(gather->data, (View{2, 7}));
  EXPECT_EQ(gather->count, 10);
  EXPECT_EQ(gather->elements, 20);
  EXPECT_EQ(gather->among, half);
  EXPECT_EQ(collective_of(op::ReduceScatterAverage{{1}, {2}, 10, {}}, 4)->elements, 40);
  EXPECT_EQ(collective_of(op::ReduceAverage{{1}, 10, 3}, 4)->root, 3);
  EXPECT_FALSE(collective_of(op::Add{}, 4));
}

TEST(OperationsTest, AnAccessIsOfAViewThatIsThere) {
  const StepPlan plan = test::build(test::tiny_gpt2(), test::tiny_config(0), 1);
  using enum Access::Kind;
  const std::vector<Access> added{{{2, 0}, 7, read}, {{1, 3}, 7, update}};
  EXPECT_EQ(accesses(plan, op::Add{{1, 3}, {2, 0}, 7}), added);
  // fp32 has no model beside the master's copy, SGD no moments.
  const std::vector<Access> updated{{{4}, 9, read}, {{1}, 9, update}};
  EXPECT_EQ(accesses(plan, op::UpdateParameters{{1}, {}, {}, {4}, {}, 9}), updated);
  EXPECT_TRUE(accesses(plan, op::Wait{3}).empty());
}

}  // namespace
}  // namespace dstune
