// Many more ranks than cores: all collectives with small data, in groups of many sizes.
#include "group_fixture.hpp"

namespace dstune {
namespace {

using test::Job;
using test::Transport;

// Integers of which every partial sum is exact.
float value_of(int rank, std::size_t i) {
  return static_cast<float>(rank % 13) + 16.0F * static_cast<float>(i % 3);
}

void check_all_collectives(ProcessGroup& group, std::size_t count) {
  const auto size = static_cast<std::size_t>(group.size());
  const auto rank = static_cast<std::size_t>(group.group_rank());
  const auto signed_count = static_cast<std::int64_t>(count);
  std::vector<float> mine(count * size);
  std::vector<float> mean(count * size, 0);
  for (std::size_t i = 0; i < mine.size(); ++i) {
    mine[i] = value_of(group.group_rank(), i);
    for (int other = 0; other < group.size(); ++other) mean[i] += value_of(other, i);
    mean[i] /= static_cast<float>(size);
  }
  const auto part = mean.begin() + static_cast<std::ptrdiff_t>(rank * count);
  std::vector<float> scattered(count);
  group.reduce_scatter_average(scattered.data(), mine.data(), signed_count, DType::f32);
  ASSERT_TRUE(std::equal(scattered.begin(), scattered.end(), part));
  std::vector<float> gathered(count * size);
  group.all_gather(gathered.data(), scattered.data(), signed_count, DType::f32);
  ASSERT_EQ(gathered, mean);
  std::vector<float> rooted = mine;
  const int root = group.size() / 2;
  group.reduce_average(rooted.data(), signed_count * group.size(), DType::f32, root);
  ASSERT_EQ(rooted, group.group_rank() == root ? mean : mine);
  group.all_reduce_average(mine.data(), signed_count * group.size(), DType::f32);
  ASSERT_EQ(mine, mean);
  const std::vector<double> numbers = group.exchange(std::vector<double>{1.0 * group.group_rank()});
  for (std::size_t other = 0; other < size; ++other)
    ASSERT_EQ(numbers[other], static_cast<double>(other));
}

TEST(ManyRanksTest, AllCollectivesInGroupsOfEverySize) {
  Job job(Transport::shared_memory);
  for (int size = 1; size <= job.size(); size *= 2) {
    std::vector<int> mine(static_cast<std::size_t>(size));
    std::iota(mine.begin(), mine.end(), job.rank() / size * size);
    const auto group = job.join(mine);
    for (const std::size_t count : {1UL, 129UL}) check_all_collectives(*group, count);
  }
}

TEST(ManyRanksTest, SizesThatDoNotDivideShareTheNode) {
  Job job(Transport::shared_memory);
  const int size = std::max(1, job.size() / 3);
  std::vector<int> mine;
  for (int rank = 0; rank < job.size(); ++rank)
    if (rank / size == job.rank() / size) mine.push_back(rank);
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
