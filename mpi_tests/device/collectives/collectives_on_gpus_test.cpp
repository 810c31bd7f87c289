#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include "gpu_of_rank.hpp"
#include "group_fixture.hpp"

namespace dstune {
namespace {

using test::Elements;
using test::Job;
using test::Transport;

constexpr std::int64_t arena_bytes = std::int64_t{256} << 20;

/// A rank with its GPU, the groups on it, and copies of what is on it.
class CollectivesOnGpus : public testing::Test {
 protected:
  void SetUp() override {
    gpu_ = test::find_gpu_of_rank(arena_bytes);
    if (!gpu_.violation.empty()) GTEST_SKIP() << gpu_.violation;
    device_ = gpu_.device.get();
    device_->arena().prepare(arena_bytes);
    device_->host_arena().prepare(arena_bytes);
    const GroupTable::Options options{.device = test::groups_on(gpu_)};
    job_.emplace(Transport::shared_memory, std::vector<std::vector<int>>{}, options);
    join(job_->everyone());
    if (job_->rank() == 0) {
      const DeviceGroups& devices = *job_->table().devices();
      std::printf("%s, %lld bytes of the GPU\n",
                  devices.transport_of(job_->everyone()).text.c_str(),
                  static_cast<long long>(devices.communicator_bytes()));
    }
  }

  void join(const std::vector<int>& ranks) {
    group_ = job_->join(ranks);
    device_->queues().prepare({.queues = 2, .events = 1, .stamps = 0},
                              group_->watched(job_->waiter()));
  }
  /// Numbers that add up exactly, different for each rank and place.
  [[nodiscard]] static float number(int rank, std::int64_t place) {
    return static_cast<float>((3 * rank + place) % 11 - 5);
  }
  [[nodiscard]] float sum(std::int64_t place) const {
    float sum = 0;
    for (int rank = 0; rank < group_->size(); ++rank) sum += number(rank, place);
    return sum;
  }
  /// On the GPU, at an offset of bytes.
  [[nodiscard]] std::byte* at(std::int64_t offset_bytes) const {
    return device_->arena().base() + offset_bytes;
  }
  void write(std::int64_t offset_bytes, std::int64_t count, DType type) {
    Elements elements(type, count);
    for (std::int64_t i = 0; i < count; ++i) elements.set(i, number(group_->group_rank(), i));
    std::byte* const pinned = device_->host_arena().base();
    std::memcpy(pinned, elements.bytes.data(), elements.bytes.size());
    device_->queues().copy(at(offset_bytes), pinned,
                           static_cast<std::int64_t>(elements.bytes.size()));
    device_->queues().finish_used();
  }
  Elements read(std::int64_t offset_bytes, std::int64_t count, DType type) {
    Elements elements(type, count);
    std::byte* const pinned = device_->host_arena().base();
    device_->queues().copy(pinned, at(offset_bytes),
                           static_cast<std::int64_t>(elements.bytes.size()));
    device_->queues().finish_used();
    std::memcpy(elements.bytes.data(), pinned, elements.bytes.size());
    return elements;
  }
  void expect_means(const Elements& means, std::int64_t count, std::int64_t first) const {
    const auto size = static_cast<float>(group_->size());
    const float tolerance = means.type == DType::f32 ? 1e-5F : 0.02F;
    for (std::int64_t i = 0; i < count; ++i)
      ASSERT_NEAR(means.get(i), sum(first + i) / size, tolerance * size) << i;
  }

  test::GpuOfRank gpu_;
  Device* device_ = nullptr;
  std::optional<Job> job_;
  std::unique_ptr<ProcessGroup> group_;
};

constexpr std::int64_t counts[] = {1, 1000, 1'000'003};
constexpr DType types[] = {DType::f32, DType::bf16, DType::f16};
constexpr std::int64_t second_bytes = std::int64_t{128} << 20;

TEST_F(CollectivesOnGpus, ReduceToAllAndToOne) {
  for (const DType type : types) {
    for (const std::int64_t count : counts) {
      write(0, count, type);
      group_->all_reduce_average(at(0), count, type);
      expect_means(read(0, count, type), count, 0);
      write(0, count, type);
      group_->all_reduce_sum(at(0), count, type);
      const Elements sums = read(0, count, type);
      for (std::int64_t i = 0; i < count; ++i) ASSERT_EQ(sums.get(i), sum(i)) << i;
      write(0, count, type);
      group_->reduce_average(at(0), count, type, group_->size() - 1);
      const Elements reduced = read(0, count, type);
      if (group_->group_rank() == group_->size() - 1) {
        expect_means(reduced, count, 0);
      } else {
        for (std::int64_t i = 0; i < count; ++i)
          ASSERT_EQ(reduced.get(i), number(group_->group_rank(), i)) << i;
      }
    }
  }
}

// As a plug-in has it.
TEST_F(CollectivesOnGpus, TheHostsGroupTakesTheHostsMemory) {
  constexpr int count = 5;
  Elements elements(DType::f32, count);
  for (int i = 0; i < count; ++i) elements.set(i, number(group_->group_rank(), i));
  Elements all(DType::f32, count * group_->size());
  group_->host().all_gather(all.bytes.data(), elements.bytes.data(), count, DType::f32);
  for (int i = 0; i < count * group_->size(); ++i)
    ASSERT_EQ(all.get(i), number(i / count, i % count)) << i;
  group_->host().all_reduce_average(elements.bytes.data(), count, DType::f32);
  expect_means(elements, count, 0);
}

TEST_F(CollectivesOnGpus, ScatterGatherAndTrade) {
  const int size = group_->size(), own = group_->group_rank();
  device_->queues().use(1);
  for (const DType type : types) {
    for (const std::int64_t count : counts) {
      if (count * size * size_bytes(type) > second_bytes / 2) continue;
      const std::int64_t own_bytes = own * count * size_bytes(type);
      write(0, size * count, type);
      group_->reduce_scatter_average(at(second_bytes), at(0), count, type);
      expect_means(read(second_bytes, count, type), count, own * count);
      group_->reduce_scatter_average(at(own_bytes), at(0), count, type);
      expect_means(read(own_bytes, count, type), count, own * count);
      for (const bool is_in_place : {false, true}) {
        const std::int64_t in_bytes = is_in_place ? second_bytes + own_bytes : 0;
        write(in_bytes, count, type);
        group_->all_gather(at(second_bytes), at(in_bytes), count, type);
        const Elements all = read(second_bytes, size * count, type);
        for (std::int64_t i = 0; i < size * count; ++i)
          ASSERT_EQ(all.get(i), number(static_cast<int>(i / count), i % count)) << i;
      }
      write(0, size * count, type);
      group_->all_to_all(at(second_bytes), at(0), count, type);
      const Elements traded = read(second_bytes, size * count, type);
      for (std::int64_t i = 0; i < size * count; ++i)
        ASSERT_EQ(traded.get(i), number(static_cast<int>(i / count), own * count + i % count)) << i;
    }
  }
}

TEST_F(CollectivesOnGpus, PartsWorkSideBySide) {
  if (group_->size() % 2 != 0) GTEST_SKIP() << "needs an even number of ranks";
  const RankRange half = range_of(group_->group_rank(), 1, group_->size() / 2);
  for (int round = 0; round < 3; ++round) {
    write(0, 1000, DType::f32);
    group_->all_gather(at(second_bytes), at(0), 1000, DType::f32, half);
    const Elements all = read(second_bytes, half.count * 1000, DType::f32);
    for (std::int64_t i = 0; i < half.count * 1000; ++i)
      ASSERT_EQ(all.get(i), number(half.rank(static_cast<int>(i / 1000)), i % 1000)) << i;
  }
}

TEST_F(CollectivesOnGpus, CommunicatorsComeAndGoInTheSameMemory) {
  const DeviceGroups& devices = *job_->table().devices();
  if (devices.transport_of(job_->everyone()).is_staged)
    GTEST_SKIP() << "no rank has a GPU of its own";
  const std::int64_t held_bytes = devices.communicator_bytes();
  for (int round = 0; round < 20; ++round) {
    group_ = job_->join(job_->everyone());
    write(0, 1000, DType::f32);
    group_->all_reduce_sum(at(0), 1000, DType::f32);
    device_->queues().finish_all();
  }
  EXPECT_EQ(devices.communicator_bytes(), held_bytes) << "the same communicator all the time";
}

// What is put away for want of room may be another group's, too, and not all of its ranks are here.
TEST_F(CollectivesOnGpus, WhatSomeRanksPutAwayHoldsUpNobody) {
  if (group_->size() < 3) GTEST_SKIP() << "needs a rank beside a pair";
  if (job_->table().devices()->transport_of(job_->everyone()).is_staged)
    GTEST_SKIP() << "no rank has a GPU of its own";
  group_.reset();
  job_.reset();
  GroupTable::Options options{.device = test::groups_on(gpu_)};
  options.device->max_communicators = 1;
  job_.emplace(Transport::shared_memory, std::vector<std::vector<int>>{}, options);
  const auto expect_sum_over = [&](const std::vector<int>& ranks) {
    if (std::ranges::find(ranks, job_->rank()) == ranks.end()) {
      job_->next_attempt();
      return;
    }
    join(ranks);
    write(0, 1000, DType::f32);
    group_->all_reduce_sum(at(0), 1000, DType::f32);
    const Elements sums = read(0, 1000, DType::f32);
    for (std::int64_t i = 0; i < 1000; ++i) ASSERT_EQ(sums.get(i), sum(i)) << i;
  };
  for (int round = 0; round < 2; ++round) {
    expect_sum_over(job_->everyone());
    expect_sum_over({0, 1});
    expect_sum_over({0, 1});
    // Meanwhile the others have what these put away.
    job_->world().barrier();
  }
}

}  // namespace
}  // namespace dstune
