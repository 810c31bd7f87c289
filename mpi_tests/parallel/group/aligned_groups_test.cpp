#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/error.hpp"
#include "dstune/group/group_table.hpp"

namespace dstune {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::SizeIs;

using Nodes = std::vector<std::vector<int>>;

const Nodes two_of_eight{{0, 1, 2, 3, 4, 5, 6, 7}, {8, 9, 10, 11, 12, 13, 14, 15}};

TEST(AlignedGroupsTest, StayInsideNodes) {
  const auto groups = aligned_groups(two_of_eight, 4, 1);
  EXPECT_THAT(groups, ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7),
                                  ElementsAre(8, 9, 10, 11), ElementsAre(12, 13, 14, 15)));
}

TEST(AlignedGroupsTest, LeaveOverWhatDoesNotDivide) {
  EXPECT_THAT(aligned_groups(two_of_eight, 3, 1),
              ElementsAre(ElementsAre(0, 1, 2), ElementsAre(3, 4, 5), ElementsAre(8, 9, 10),
                          ElementsAre(11, 12, 13)));
  EXPECT_THAT(aligned_groups(two_of_eight, 9, 1), IsEmpty());
  EXPECT_THAT(aligned_groups(two_of_eight, 1, 1), SizeIs(16));
}

TEST(AlignedGroupsTest, SpanRunsOfNodes) {
  EXPECT_THAT(
      aligned_groups(two_of_eight, 4, 2),
      ElementsAre(ElementsAre(0, 1, 2, 3, 8, 9, 10, 11), ElementsAre(4, 5, 6, 7, 12, 13, 14, 15)));
  EXPECT_THAT(aligned_groups(two_of_eight, 8, 2), SizeIs(1));
  EXPECT_THAT(aligned_groups(two_of_eight, 1, 3), IsEmpty());
}

TEST(AlignedGroupsTest, FollowTheSmallestOfUnevenNodes) {
  const Nodes uneven{{0, 1, 2, 3}, {4, 5}, {6, 7, 8, 9}, {10, 11, 12}};
  EXPECT_THAT(aligned_groups(uneven, 2, 2),
              ElementsAre(ElementsAre(0, 1, 4, 5), ElementsAre(6, 7, 10, 11)));
  EXPECT_THAT(aligned_groups(uneven, 3, 2), ElementsAre(ElementsAre(6, 7, 8, 10, 11, 12)));
}

TEST(AlignedGroupsTest, AscendWhereRanksAreDealtAroundTheNodes) {
  EXPECT_THAT(aligned_groups(Nodes{{0, 2, 4}, {1, 3, 5}}, 2, 2),
              ElementsAre(ElementsAre(0, 1, 2, 3)));
}

TEST(AlignedGroupsTest, RefuseEmptyShapes) {
  EXPECT_THROW(aligned_groups(two_of_eight, 0, 1), LogicError);
  EXPECT_THROW(aligned_groups(two_of_eight, 1, 0), LogicError);
}

}  // namespace
}  // namespace dstune
