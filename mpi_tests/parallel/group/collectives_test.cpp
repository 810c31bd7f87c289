#include <algorithm>
#include <cmath>
#include <map>

#include "group_calls.hpp"
#include "group_values.hpp"
#include "random_elements.hpp"

namespace dstune {
namespace {

using test::Elements;
using test::expect_gather;
using test::expect_mean;
using test::expect_root;
using test::expect_scatter;
using test::filled;
using test::Job;
using test::mean_of;
using test::parts_of;
using test::random_elements;
using test::Transport;
using test::value_of;

constexpr std::int64_t odd_counts[] = {0, 1, 7, 1000, (1 << 20) + 3};
constexpr DType types[] = {DType::f32, DType::bf16, DType::f16};

/// Pieces of several chunks.
GroupTable::Options small_staging(std::size_t mpi_bytes = 10'000) {
  GroupTable::Options small;
  small.staging_bytes = std::size_t{64} << 10;
  small.mpi_staging_bytes = mpi_bytes;
  return small;
}

class CollectivesTest : public testing::TestWithParam<Transport> {
 protected:
  Job job_{GetParam()};
  std::unique_ptr<ProcessGroup> group_ = job_.join(job_.everyone());
};
INSTANTIATE_TEST_SUITE_P(Ways, CollectivesTest,
                         testing::Values(Transport::shared_memory, Transport::mpi), test::way_name);

TEST_P(CollectivesTest, AllReduceGivesTheMean) {
  for (const DType type : types)
    for (const std::int64_t count : odd_counts) expect_mean(*group_, {}, count, type);
}

TEST_P(CollectivesTest, AllReduceGivesTheSum) {
  const int size = group_->size();
  for (const DType type : types) {
    for (const std::int64_t count : odd_counts) {
      Elements data = filled(group_->group_rank(), count, size, type);
      Elements sums(type, count);
      for (std::int64_t i = 0; i < count; ++i)
        sums.set(i, mean_of({0, 1, size}, i) * static_cast<float>(size));
      group_->all_reduce_sum(data.bytes.data(), count, type);
      EXPECT_TRUE(data.bytes == sums.bytes) << count;
    }
  }
}

TEST_P(CollectivesTest, ReduceGivesTheRootTheMeanAndLeavesTheOthers) {
  for (const DType type : types)
    for (const std::int64_t count : odd_counts)
      for (int root = 0; root < group_->size(); ++root) expect_root(*group_, root, count, type);
}

TEST_P(CollectivesTest, ReduceScatterGivesEachItsPart) {
  for (const DType type : types)
    for (const std::int64_t count : odd_counts) expect_scatter(*group_, {}, count, type);
}

TEST_P(CollectivesTest, AllGatherPlacesEveryPart) {
  for (const DType type : types)
    for (const std::int64_t count : odd_counts) expect_gather(*group_, {}, count, type);
}

/// What `from` has for the part `index` of those that take part.
std::byte byte_of(int from, int index, std::int64_t i) {
  return static_cast<std::byte>(50 * from + 10 * index + static_cast<int>(i % 7));
}

TEST_P(CollectivesTest, AllToAllTradesParts) {
  Job job(GetParam(), {}, small_staging());
  const auto group = job.join(job.everyone());
  const int rank = group->group_rank();
  std::vector<RankRange> parts = parts_of(*group);
  parts.push_back({});
  for (const RankRange& among : parts) {
    const RankRange ranks = among.in_group_of(group->size());
    SCOPED_TRACE("from " + std::to_string(ranks.first) + " by " + std::to_string(ranks.stride));
    for (const DType type : {DType::i8, DType::f32}) {
      for (const std::int64_t count : {0, 1, 7, 20'003}) {
        const std::int64_t bytes = count * size_bytes(type);
        std::vector<std::byte> in, expected;
        for (int index = 0; index < ranks.count; ++index) {
          for (std::int64_t i = 0; i < bytes; ++i) {
            in.push_back(byte_of(rank, index, i));
            expected.push_back(byte_of(ranks.rank(index), ranks.index_of(rank), i));
          }
        }
        std::vector<std::byte> out(in.size());
        group->all_to_all(out.data(), in.data(), count, type, among);
        EXPECT_TRUE(out == expected) << count;
      }
    }
  }
}

// Ranks outside of a part neither give nor take; parts follow each other and the whole at once.
TEST_P(CollectivesTest, PartsOfAGroupDoTheSameSideBySide) {
  Job job(GetParam(), {}, small_staging());
  const auto group = job.join(job.everyone());
  for (const RankRange& among : parts_of(*group)) {
    SCOPED_TRACE("from " + std::to_string(among.first) + " by " + std::to_string(among.stride));
    for (const DType type : types) {
      for (const std::int64_t count : {0, 1, 7, 20'003}) {
        expect_mean(*group, among, count, type);
        expect_scatter(*group, among, count, type);
        expect_gather(*group, among, count, type);
        expect_mean(*group, {}, count, type);
      }
    }
  }
}

TEST_P(CollectivesTest, ARankTakesPartInItsOwnCalls) {
  if (job_.size() == 1) GTEST_SKIP() << "there is no other rank";
  // Who is still joining would wait for a rank whose group has ended.
  job_.world().barrier();
  float data = 1;
  const int other = (group_->group_rank() + 1) % group_->size();
  EXPECT_THROW(group_->all_reduce_average(&data, 1, DType::f32, {other, 1, 1}), LogicError);
}

TEST_P(CollectivesTest, ExchangeBringsNumbersInRankOrder) {
  for (int round = 0; round < 300; ++round) {
    const std::vector<double> mine(static_cast<std::size_t>(1 + round % 32),
                                   group_->group_rank() + 0.25 * round);
    const std::vector<double> all = group_->exchange(mine);
    ASSERT_EQ(all.size(), mine.size() * static_cast<std::size_t>(group_->size()));
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(all[i], static_cast<double>(i / mine.size()) + 0.25 * round);
    }
  }
}

TEST_P(CollectivesTest, MeansAreRoundedOnceToNearestEven) {
  if (job_.size() != 2) GTEST_SKIP() << "worked out for two ranks";
  struct Case {
    float parts[2], mean;
  };
  // 1 + 2^-7 is the next bf16 after 1, 1 + 2^-10 the next half; halves between neighbours go to the
  // even one. The sum of the two largest halves is no half, their mean is one.
  constexpr float bf16_step = 0x1p-7F, f16_step = 0x1p-10F;
  const std::map<DType, std::vector<Case>> cases{
      {DType::bf16,
       {{{1, 1 + bf16_step}, 1},
        {{1 + bf16_step, 1 + 2 * bf16_step}, 1 + 2 * bf16_step},
        {{1, 256}, 128},
        {{-3, INFINITY}, INFINITY}}},
      {DType::f16,
       {{{1, 1 + f16_step}, 1},
        {{1 + f16_step, 1 + 2 * f16_step}, 1 + 2 * f16_step},
        {{65504, 65504}, 65504},
        {{-3, INFINITY}, INFINITY},
        {{0x1p-14F, -0x1p-14F}, 0},
        {{0x1p-14F, 0}, 0x1p-15F}}}};
  for (const auto& [type, of_type] : cases) {
    const auto count = static_cast<std::int64_t>(of_type.size());
    Elements data(type, count + 1);
    for (std::int64_t i = 0; i < count; ++i)
      data.set(i, of_type[static_cast<std::size_t>(i)].parts[group_->group_rank()]);
    data.set(count, std::nanf(""));
    group_->all_reduce_average(data.bytes.data(), count + 1, type);
    for (std::int64_t i = 0; i < count; ++i)
      EXPECT_EQ(data.get(i), of_type[static_cast<std::size_t>(i)].mean) << i;
    EXPECT_TRUE(std::isnan(data.get(count)));
  }
}

TEST(BitsTest, BitsDependNeitherOnTheWayNorOnChunks) {
  constexpr std::int64_t count = 100003;
  for (const DType type : types) {
    std::vector<std::vector<std::byte>> results;
    for (const Transport way : {Transport::shared_memory, Transport::mpi}) {
      for (const GroupTable::Options& options : {GroupTable::Options{}, small_staging(1000)}) {
        Job job(way, {}, options);
        const auto group = job.join(job.everyone());
        Elements data = random_elements(job.rank(), count, type);
        group->all_reduce_average(data.bytes.data(), count, type);
        results.push_back(data.bytes);
      }
    }
    Job job(Transport::shared_memory);
    Elements expected(type, count);
    std::vector<float> sums(count, 0);
    for (int rank = 0; rank < job.size(); ++rank) {
      const Elements part = random_elements(rank, count, type);
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const float value = part.get(static_cast<std::int64_t>(i));
        sums[i] = rank == 0 ? value : sums[i] + value;
      }
    }
    if (type == DType::f32) {
      for (std::int64_t i = 0; i < count; ++i) {
        expected.set(i, sums[static_cast<std::size_t>(i)] / static_cast<float>(job.size()));
      }
      EXPECT_TRUE(results[0] == expected.bytes);
    }
    for (const auto& result : results) EXPECT_TRUE(result == results[0]);
  }
}

// Pieces have 32 KiB. Ranks of one node hand each other what came from another node.
TEST(BitsTest, NodesAndPiecesChangeNoBits) {
  for (const DType type : {DType::f32, DType::bf16}) {
    const std::int64_t piece = (std::int64_t{32} << 10) / size_bytes(type);
    for (const std::int64_t count : {std::int64_t{1}, piece + 1}) {
      std::vector<std::vector<std::vector<std::byte>>> results;
      for (const int ranks_per_node : {0, 1, 2, 3}) {
        Job job(ranks_per_node == 0 ? Transport::shared_memory : Transport::mpi, {}, {},
                ranks_per_node);
        const auto group = job.join(job.everyone());
        std::vector<std::vector<std::byte>>& mine = results.emplace_back();
        for (const test::Call& call : test::calls_of(*group, count, type))
          mine.push_back(call(*group, [] {}));
        EXPECT_TRUE(mine == results.front()) << count << ", a node " << ranks_per_node;
      }
    }
  }
}

TEST(BitsTest, PartsOfAReductionAreThoseOfTheWhole) {
  for (const Transport way : {Transport::shared_memory, Transport::mpi}) {
    Job job(way);
    const auto group = job.join(job.everyone());
    const std::int64_t count = 70001;
    for (const DType type : {DType::bf16, DType::f16}) {
      Elements whole = random_elements(job.rank(), count * group->size(), type);
      Elements part(type, count);
      group->reduce_scatter_average(part.bytes.data(), whole.bytes.data(), count, type);
      group->all_reduce_average(whole.bytes.data(), count * group->size(), type);
      EXPECT_EQ(0, std::memcmp(part.bytes.data(), whole.at(count * group->group_rank()),
                               part.bytes.size()));
    }
  }
}

}  // namespace
}  // namespace dstune
