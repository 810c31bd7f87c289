#include "dstune/group/staged_group.hpp"

#include "deferred_queues.hpp"
#include "dstune/group/process_group.hpp"
#include "group_calls.hpp"
#include "group_fixture.hpp"

namespace dstune {
namespace {

using test::Call;
using test::calls_of;
using test::DeferredQueues;
using test::Job;
using test::Transport;

constexpr DType types[] = {DType::f32, DType::bf16, DType::f16};
constexpr std::int64_t counts[] = {0, 1, 7, 1000, 20'003};

/// Pinned memory, of so few bytes that there are many pieces, and a line too many to be even.
struct alignas(64) Staging {
  std::byte bytes[64 * 33];
};

/// A host's group that is handed no memory of the device.
class OnTheHost : public ProcessGroup {
 public:
  OnTheHost(std::unique_ptr<ProcessGroup> group, const Staging& staging)
      : ProcessGroup(group->group_rank(), group->world_ranks()),
        group_(std::move(group)),
        staging_(staging) {}

  void all_reduce(void* data, std::int64_t count, DType type, Reduction op,
                  const RankRange& among) override {
    check(data, count, type);
    group_->all_reduce(data, count, type, op, among);
  }
  void reduce_average(void* data, std::int64_t count, DType type, int root) override {
    check(data, count, type);
    group_->reduce_average(data, count, type, root);
  }
  void reduce_scatter_average(void* out, const void* in, std::int64_t count, DType type,
                              const RankRange& among) override {
    check(out, count, type);
    check(in, among.size(size()) * count, type);
    group_->reduce_scatter_average(out, in, count, type, among);
  }
  void all_gather(void* out, const void* in, std::int64_t count, DType type,
                  const RankRange& among) override {
    check(out, among.size(size()) * count, type);
    check(in, count, type);
    group_->all_gather(out, in, count, type, among);
  }
  void all_to_all(void* out, const void* in, std::int64_t count, DType type,
                  const RankRange& among) override {
    check(out, among.size(size()) * count, type);
    check(in, among.size(size()) * count, type);
    group_->all_to_all(out, in, count, type, among);
  }
  void exchange_into(std::span<const double> mine, std::span<double> all) override {
    group_->exchange_into(mine, all);
  }

 private:
  void check(const void* data, std::int64_t count, DType type) const {
    const auto* const begin = static_cast<const std::byte*>(data);
    require(begin >= staging_.bytes &&
                begin + count * size_bytes(type) <= staging_.bytes + sizeof staging_.bytes,
            "the host's group works on the host's memory");
  }

  std::unique_ptr<ProcessGroup> group_;
  const Staging& staging_;
};

class StagedGroupTest : public testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(Ways, StagedGroupTest,
                         testing::Values(Transport::shared_memory, Transport::mpi), test::way_name);

TEST_P(StagedGroupTest, GivesTheBitsOfTheHostsGroup) {
  Job job(GetParam());
  for (const DType type : types) {
    for (const std::int64_t count : counts) {
      std::vector<std::vector<std::byte>> expected;
      const auto host = job.join(job.everyone());
      for (const Call& call : calls_of(*host, count, type)) expected.push_back(call(*host, [] {}));
      Staging staging;
      DeferredQueues queues(3);
      StagedGroup group(std::make_unique<OnTheHost>(job.join(job.everyone()), staging), queues,
                        staging.bytes);
      int number = 0;
      for (const Call& call : calls_of(group, count, type)) {
        // The memory is free for the next call, in whatever queue that is.
        queues.use(number % 3);
        EXPECT_TRUE(call(group, [&] { queues.finish_used(); }) ==
                    expected.at(static_cast<std::size_t>(number)))
            << "call " << number << " of " << count << " elements";
        ++number;
      }
    }
  }
}

TEST_P(StagedGroupTest, TakesWhatTheQueueWasAskedForBefore) {
  Job job(GetParam());
  Staging staging;
  DeferredQueues queues(2, 1);
  StagedGroup group(job.join(job.everyone()), queues, staging.bytes);
  const auto own = static_cast<float>(group.group_rank());
  float written = 0, data = 0;
  const float value = own;
  queues.use(0);
  queues.copy(&written, &value, sizeof value);
  queues.record(0);
  queues.use(1);
  queues.wait(0);
  queues.copy(&data, &written, sizeof data);
  EXPECT_EQ(written, 0.0F);
  group.all_reduce_sum(&data, 1, DType::f32);
  const auto size = static_cast<float>(group.size());
  EXPECT_EQ(data, size * (size - 1) / 2);
  EXPECT_EQ(group.exchange(std::vector{1.5}), std::vector<double>(job.everyone().size(), 1.5));
}

TEST_P(StagedGroupTest, ADeadlineOfTheHostsGroupComesOut) {
  Job job(GetParam());
  if (job.size() < 2) GTEST_SKIP() << "needs somebody to wait";
  Staging staging;
  DeferredQueues queues;
  StagedGroup group(job.table().join(job.everyone(), job.next_attempt(), job.waiter(1.5)), queues,
                    staging.bytes);
  float data = 1;
  if (job.rank() > 0) {
    EXPECT_THROW(group.all_reduce_sum(&data, 1, DType::f32), CollectiveError);
    EXPECT_THROW(group.all_reduce_sum(&data, 1, DType::f32), LogicError);
    EXPECT_EQ(data, 1.0F) << "nothing came back";
  }
  // Only here: whoever leaves at once ends the others' waits by that.
  job.world().barrier();
  job.table().abandon(job.everyone());
  job.world().barrier();
}

TEST_P(StagedGroupTest, ADeviceThatNeverFinishesIsADeadline) {
  Job job(GetParam());
  Staging staging;
  DeferredQueues queues(1, 0, job.waiter(0.1));
  StagedGroup group(job.join(job.everyone()), queues, staging.bytes);
  queues.get_stuck();
  float data = 1;
  EXPECT_EQ(test::why_ended([&] { group.all_reduce_sum(&data, 1, DType::f32); }),
            CollectiveError::Cause::deadline);
  EXPECT_THROW(group.exchange(std::vector{1.0}), LogicError);
}

TEST_P(StagedGroupTest, NeedsALineOfMemoryAPartAndItsOwnRank) {
  Job job(GetParam());
  Staging staging;
  DeferredQueues queues;
  const std::size_t least = StagedGroup::min_staging_bytes(job.size());
  EXPECT_THROW(StagedGroup(job.join(job.everyone()), queues, std::span(staging.bytes, least - 1)),
               LogicError);
  StagedGroup group(job.join(job.everyone()), queues, std::span(staging.bytes, least));
  if (job.size() == 1) return;
  float data = 1;
  const RankRange other{(group.group_rank() + 1) % group.size(), 1, 1};
  EXPECT_THROW(group.all_gather(&data, &data, 1, DType::f32, other), LogicError);
}

TEST(SelfGroupTest, CopiesInTheQueueThatIsUsed) {
  DeferredQueues queues(2);
  SelfGroup group(3, queues);
  const float in = 5;
  float out = 0;
  queues.use(1);
  group.all_gather(&out, &in, 1, DType::f32, {});
  group.reduce_scatter_average(&out, &out, 1, DType::f32, {});
  EXPECT_EQ(queues.num_waiting(), 1U) << "what is its own result needs no copy";
  EXPECT_EQ(out, 0.0F);
  queues.finish_used();
  EXPECT_EQ(out, 5.0F);
}

}  // namespace
}  // namespace dstune
