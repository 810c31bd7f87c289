#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "group_fixture.hpp"

namespace dstune {
namespace {

using namespace std::chrono_literals;
using test::Job;
using test::Transport;
using test::why_ended;

// The mean of the members' world ranks, as one collective of the group sees it.
void expect_sum_of_members(ProcessGroup& group, std::int64_t count = 5) {
  std::vector<float> data(
      static_cast<std::size_t>(count),
      static_cast<float>(group.world_ranks()[static_cast<std::size_t>(group.group_rank())]));
  group.all_reduce_average(data.data(), count, DType::f32);
  const auto& ranks = group.world_ranks();
  const auto sum = static_cast<float>(std::accumulate(ranks.begin(), ranks.end(), 0));
  for (const float mean : data) ASSERT_EQ(mean, sum / static_cast<float>(ranks.size()));
}

class GroupTableTest : public testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(Ways, GroupTableTest,
                         testing::Values(Transport::shared_memory, Transport::mpi), test::way_name);

TEST_P(GroupTableTest, GroupsOfDifferentSizesRunAtTheSameTime) {
  Job job(GetParam());
  const int first_size = std::max(1, job.size() - 1);
  std::vector<int> mine;
  for (int rank = 0; rank < job.size(); ++rank) {
    if ((rank < first_size) == (job.rank() < first_size)) mine.push_back(rank);
  }
  for (int round = 0; round < 20; ++round) {
    const auto group = job.join(mine);
    EXPECT_EQ(group->size(), static_cast<int>(mine.size()));
    expect_sum_of_members(*group, 100 + 5000 * round);
  }
  expect_sum_of_members(*job.join(job.everyone()));
}

TEST_P(GroupTableTest, AMemberThatNeverComesIsADeadlineOnTheOthers) {
  Job job(GetParam(), {});
  if (job.size() < 2) GTEST_SKIP() << "needs somebody to wait";
  const std::uint64_t attempt = job.next_attempt();
  if (job.rank() != job.size() - 1) {
    const auto join = [&] { job.table().join(job.everyone(), attempt, job.waiter(0.2)); };
    EXPECT_EQ(why_ended(join), CollectiveError::Cause::deadline);
    job.table().abandon(job.everyone());
  }
  expect_sum_of_members(*job.join(job.everyone()));
  EXPECT_FALSE(job.table().has_abandoned());
}

TEST_P(GroupTableTest, AMemberThatStopsInsideIsAnErrorOnTheOthersAndTheNextAttemptWorks) {
  Job job(GetParam());
  if (job.size() < 2) GTEST_SKIP() << "needs somebody to wait";
  {
    auto abort_at = Waiter::Clock::time_point::max();
    const auto group =
        job.table().join(job.everyone(), job.next_attempt(),
                         job.waiter(40, [&abort_at] { return Waiter::Clock::now() >= abort_at; }));
    expect_sum_of_members(*group);
    if (job.rank() != 0) {
      abort_at = Waiter::Clock::now() + 500ms;
      std::vector<float> data(1000, 1);
      EXPECT_THROW(group->all_reduce_average(data.data(), 1000, DType::f32), CollectiveError);
      EXPECT_THROW(group->exchange({}), LogicError);
    } else {
      std::this_thread::sleep_for(700ms);
    }
  }
  // Rank 0 saw nothing of it and remembers its communicator as good.
  expect_sum_of_members(*job.join(job.everyone()));
  job.world().barrier();
}

TEST_P(GroupTableTest, AnAbortEndsAWaitSoon) {
  Job job(GetParam());
  if (job.size() < 2) GTEST_SKIP() << "needs somebody to wait";
  {
    auto abort_at = Waiter::Clock::time_point::max();
    const auto group =
        job.table().join(job.everyone(), job.next_attempt(),
                         job.waiter(40, [&abort_at] { return Waiter::Clock::now() >= abort_at; }));
    if (job.rank() != 0) {
      abort_at = Waiter::Clock::now() + 300ms;
      EXPECT_EQ(why_ended([&] { group->exchange(std::vector<double>{1}); }),
                CollectiveError::Cause::aborted);
      const auto late = Waiter::Clock::now() - abort_at;
      EXPECT_GE(late, 0ms);
      // Asked every millisecond; the rest is for a busy machine.
      EXPECT_LT(late, 700ms);
    }
  }
  job.world().barrier();
  expect_sum_of_members(*job.join(job.everyone()));
  job.world().barrier();
}

TEST_P(GroupTableTest, AnErrorInAWaitIsTheEndOfItsGroup) {
  Job job(GetParam());
  if (job.size() < 2) GTEST_SKIP() << "needs somebody to wait";
  {
    bool fails = false;
    const auto asked = [&] {
      if (fails) throw MpiError("a mailbox");
      return false;
    };
    const auto group = job.table().join(job.everyone(), job.next_attempt(), job.waiter(40, asked));
    expect_sum_of_members(*group);
    // A member that still reads would see that this one leaves, and fail, too.
    job.world().barrier();
    if (job.rank() == 0) {
      fails = true;
      EXPECT_THROW(group->exchange(std::vector<double>{1}), MpiError);
      EXPECT_THROW(group->exchange(std::vector<double>{1}), LogicError);
    }
    job.world().barrier();
  }
  expect_sum_of_members(*job.join(job.everyone()));
  job.world().barrier();
}

// The address sanitizer keeps what was freed for a while.
#ifdef __SANITIZE_ADDRESS__
constexpr std::int64_t kept_by_sanitizer_bytes = std::int64_t{256} << 20;
#else
constexpr std::int64_t kept_by_sanitizer_bytes = 0;
#endif

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t total = 0;
  std::int64_t resident = 0;
  statm >> total >> resident;
  return resident * 4096;
}

std::int64_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

// The same disjoint groups on every rank, from the same seed.
std::vector<int> random_group_of(int world_rank, int world_size, std::mt19937& generator) {
  std::vector<int> ranks(static_cast<std::size_t>(world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  std::shuffle(ranks.begin(), ranks.end(), generator);
  std::vector<int> mine;
  for (std::size_t first = 0; first < ranks.size();) {
    const std::size_t size = 1 + generator() % (ranks.size() - first);
    const auto from = ranks.begin() + static_cast<std::ptrdiff_t>(first);
    const auto to = from + static_cast<std::ptrdiff_t>(size);
    if (std::find(from, to, world_rank) != to) mine.assign(from, to);
    first += size;
  }
  std::sort(mine.begin(), mine.end());
  return mine;
}

TEST_P(GroupTableTest, RandomDisjointGroupsStayFlat) {
  GroupTable::Options options;
  options.max_on_demand = 3;
  options.mpi_staging_bytes = std::size_t{256} << 10;
  Job job(GetParam(), {}, options);
  std::mt19937 generator(7);
  constexpr int rounds = 2000;
  std::int64_t resident = 0;
  std::int64_t files = 0;
  for (int round = 0; round < rounds; ++round) {
    if (round == rounds / 4) {
      resident = resident_bytes();
      files = open_files();
    }
    const auto group = job.join(random_group_of(job.rank(), job.size(), generator));
    expect_sum_of_members(*group);
  }
  EXPECT_LT(resident_bytes() - resident, (std::int64_t{8} << 20) + kept_by_sanitizer_bytes);
  EXPECT_EQ(open_files(), files);
  EXPECT_FALSE(job.table().has_abandoned());
}

TEST(GroupTableTest, KnownGroupsNeedNoCreationAndOthersAreMadeOnce) {
  if (Communicator::world().size() < 3) GTEST_SKIP() << "needs two groups of two";
  Job job(Transport::mpi, {{0, 1}});
  const std::vector<int> known{0, 1};
  const std::vector<int> unknown{0, 2};
  for (int round = 0; round < 3; ++round) {
    const std::uint64_t first = job.next_attempt();
    const std::uint64_t second = job.next_attempt();
    if (job.rank() <= 1) {
      expect_sum_of_members(*job.table().join(known, first, job.waiter()));
    }
    if (job.rank() == 0 || job.rank() == 2) {
      expect_sum_of_members(*job.table().join(unknown, second, job.waiter()));
    }
  }
  const bool made = job.rank() == 0 || job.rank() == 2;
  EXPECT_EQ(job.table().created_on_demand(), made ? 1 : 0);
}

TEST(GroupTableTest, WithoutThreadsOnlyKnownGroupsAreGiven) {
  if (Communicator::world().size() < 3) GTEST_SKIP() << "needs two groups of two";
  GroupTable::Options options;
  options.create_on_demand = false;
  Job job(Transport::mpi, {{0, 1}}, options);
  const std::uint64_t first = job.next_attempt();
  const std::uint64_t second = job.next_attempt();
  if (job.rank() <= 1) {
    expect_sum_of_members(*job.table().join(std::vector<int>{0, 1}, first, job.waiter()));
  }
  if (job.rank() == 0 || job.rank() == 2) {
    EXPECT_THROW(job.table().join(std::vector<int>{0, 2}, second, job.waiter()), CollectiveError);
  }
}

TEST(GroupTableTest, SharesMemoryInsideNodesAndUsesMpiAcross) {
  if (Communicator::world().size() < 3) GTEST_SKIP() << "needs two nodes, one of them with two";
  const std::vector<std::vector<int>> known{{0, 1}, {0, 2}};
  Job job(Transport::shared_memory, known, {}, 2);
  ASSERT_EQ(job.topology().num_nodes(), (job.size() + 1) / 2);
  std::vector<int> node = job.topology().ranks_of_node[static_cast<std::size_t>(
      job.topology().node_of_rank[static_cast<std::size_t>(job.rank())])];
  for (int round = 0; round < 30; ++round) {
    expect_sum_of_members(*job.join(node), 1000);
    const std::uint64_t across = job.next_attempt();
    if (job.rank() == 0 || job.rank() == 2) {
      expect_sum_of_members(*job.table().join(known[1], across, job.waiter()), 1000);
    }
    EXPECT_EQ(job.table().created_on_demand(), round == 0 ? 0 : 1);
    expect_sum_of_members(*job.join(job.everyone()), 1000);
  }
}

TEST(GroupTableTest, AbandoningInsideEndsTheWaitsOfTheOthersAtOnce) {
  Job job(Transport::shared_memory);
  if (job.size() < 2) GTEST_SKIP() << "needs somebody to wait";
  {
    const auto group = job.join(job.everyone());
    expect_sum_of_members(*group);
    // Nobody is inside a collective any more when the group is given up.
    job.world().barrier();
    if (job.rank() == 0) {
      job.table().abandon(job.everyone());
    } else {
      EXPECT_EQ(why_ended([&] { group->exchange(std::vector<double>{1}); }),
                CollectiveError::Cause::aborted);
    }
  }
  expect_sum_of_members(*job.join(job.everyone()));
}

TEST(GroupTableTest, RefusesGroupsThatAreNone) {
  Job job(Transport::shared_memory);
  const std::vector<int> others{job.rank() + 1};
  const std::vector<int> twice{job.rank(), job.rank()};
  EXPECT_THROW(job.table().join({}, 1, job.waiter()), LogicError);
  EXPECT_THROW(job.table().join(others, 1, job.waiter()), LogicError);
  EXPECT_THROW(job.table().join(twice, 1, job.waiter()), LogicError);
  EXPECT_THROW(job.table().join(std::vector<int>{job.rank()}, 0, job.waiter()), LogicError);
}

}  // namespace
}  // namespace dstune
