#include <chrono>
#include <vector>

#include <gtest/gtest.h>

#include "communicator_cache.hpp"
#include "dstune/base/error.hpp"

namespace dstune {
namespace {

using namespace std::chrono_literals;

/// Rank 0 does not wait for rank 1 as long as that takes.
template <class Expected>
void expect_a_miss_leaves_earlier_duplicates_usable(const Waiter& impatient) {
  const Communicator world = Communicator::world();
  auto earlier = std::make_shared<Communicator>(world.duplicate());
  auto last = std::make_shared<Communicator>(world.duplicate());
  const std::vector<int> pair{0, 1};
  if (world.rank() == 0) {
    EXPECT_THROW(create_group_until(last, pair, 1, impatient), Expected);
  }
  world.barrier();
  if (world.rank() <= 1) {
    const Waiter patient(Waiter::Clock::now() + 30s, nullptr, true);
    const Communicator group = create_group_until(earlier, pair, 2, patient);
    EXPECT_EQ(group.size(), 2);
    EXPECT_EQ(group.rank(), world.rank());
    int mine = 10 + group.rank();
    int both[2] = {};
    Request request = group.start_all_gather(&mine, both, sizeof mine);
    patient.until([&] { return request.test(); }, "the pair");
    EXPECT_EQ(both[0], 10);
    EXPECT_EQ(both[1], 11);
  }
  world.barrier();
  // The one who was missed comes late, so that the thread left behind ends before MPI does.
  if (world.rank() == 1) {
    Communicator late = last->create_group(pair, 1);
    late.abandon();
  }
  world.barrier();
}

TEST(CreationTest, AMissLeavesEarlierDuplicatesUsable) {
  expect_a_miss_leaves_earlier_duplicates_usable<CollectiveError>(
      Waiter(Waiter::Clock::now() + 200ms, nullptr, true));
}

TEST(CreationTest, SoDoesAnErrorWhileItWaits) {
  const auto fails = []() -> bool { throw MpiError("a mailbox"); };
  expect_a_miss_leaves_earlier_duplicates_usable<MpiError>(
      Waiter(Waiter::Clock::time_point::max(), fails, true));
}

TEST(CreationTest, ErrorsOfTheThreadReachItsCreator) {
  auto copy = std::make_shared<Communicator>(Communicator::world().duplicate());
  const std::vector<int> nobody{copy->size() + 5};
  EXPECT_THROW(create_group_until(copy, nobody, 1, Waiter()), MpiError);
}

}  // namespace
}  // namespace dstune
