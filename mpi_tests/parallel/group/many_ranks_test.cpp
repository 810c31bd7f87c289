// Many more ranks than cores: all collectives with small data, in groups of many sizes.
#include "group_values.hpp"

namespace dstune {
namespace {

using test::Job;
using test::Transport;

void check_all_collectives(ProcessGroup& group, std::int64_t count) {
  test::expect_scatter(group, {}, count, DType::f32);
  test::expect_gather(group, {}, count, DType::f32);
  test::expect_root(group, group.size() / 2, count * group.size(), DType::f32);
  test::expect_mean(group, {}, count * group.size(), DType::f32);
  const std::vector<double> numbers = group.exchange(std::vector<double>{1.0 * group.group_rank()});
  for (std::size_t other = 0; other < numbers.size(); ++other)
    ASSERT_EQ(numbers[other], static_cast<double>(other));
}

TEST(ManyRanksTest, AllCollectivesInGroupsOfEverySize) {
  Job job(Transport::shared_memory);
  for (int size = 1; size <= job.size(); size *= 2) {
    std::vector<int> mine(static_cast<std::size_t>(size));
    std::iota(mine.begin(), mine.end(), job.rank() / size * size);
    const auto group = job.join(mine);
    for (const std::int64_t count : {1, 129}) check_all_collectives(*group, count);
  }
}

TEST(ManyRanksTest, SizesThatDoNotDivideShareTheNode) {
  Job job(Transport::shared_memory);
  const int size = std::max(1, job.size() / 3);
  std::vector<int> mine;
  for (int rank = 0; rank < job.size(); ++rank) {
    if (rank / size == job.rank() / size) mine.push_back(rank);
  }
  for (int round = 0; round < 5; ++round) check_all_collectives(*job.join(mine), 33);
}

TEST(ManyRanksTest, SlicesOfEveryRankMeetInChunks) {
  GroupTable::Options options;
  options.staging_bytes = std::size_t{64} << 10;
  Job job(Transport::shared_memory, {}, options);
  check_all_collectives(*job.join(job.everyone()), 2000);
}

}  // namespace
}  // namespace dstune
