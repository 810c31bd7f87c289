#include "dstune/group/device_groups.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <random>
#include <thread>

#include "fake_nccl_in_queues.hpp"
#include "folder_test.hpp"
#include "group_calls.hpp"
#include "group_fixture.hpp"

namespace dstune {
namespace {

using namespace std::chrono_literals;
using test::Call;
using test::calls_of;
using test::DeferredQueues;
using test::FakeNccl;
using test::Job;
using test::Transport;
using Calls = std::vector<std::string>;

/// Staging memory of a rank: what the other ranks have more of is not used.
struct alignas(64) Staging {
  std::byte bytes[64 * 64];
};

std::string gpu_of(int rank) {
  return "GPU-" + std::to_string(rank);
}
int world_rank() {
  return Communicator::world().rank();
}
int world_size() {
  return Communicator::world().size();
}

/// The first rank's, where the ranks of a program meet.
const std::string& folder_of_all() {
  static const test::TemporaryFolder own;
  static const std::string found = [] {
    const auto* const text = reinterpret_cast<const std::byte*>(own.path().data());
    Bytes path(text, text + own.path().size());
    Communicator::world().broadcast(path, 0);
    return std::string(reinterpret_cast<const char*>(path.data()), path.size());
  }();
  return found;
}

/// A rank of a job whose groups are a device's.
class DeviceJob {
 public:
  struct Has {
    std::string device_id;
    int nccl_version = 22809;  ///< 0: none
    int max_communicators = 8;
    double seconds = 40;  ///< until a queue's wait for peers ends
    bool nccl_alone = false;
  };
  explicit DeviceJob(Has has, Transport way = Transport::shared_memory)
      : queues_(2), nccl_(test::fake_nccl_in(queues_, folder_of_all(), waiter_of(has.seconds))) {
    nccl_->set_polls(3);
    nccl_->set_version(has.nccl_version);
    GroupTable::Options options;
    options.device = DeviceGroupOptions{
        .queues = &queues_,
        .staging = std::span(staging_.bytes)
                       .first(sizeof staging_.bytes - 64 * static_cast<std::size_t>(world_rank())),
        .device_id = has.device_id,
        .nccl = {has.nccl_version == 0 ? nullptr : nccl_, ""},
        .free_bytes = nullptr,
        .max_communicators = has.max_communicators,
        .nccl_alone = has.nccl_alone};
    job_.emplace(way, std::vector<std::vector<int>>{}, options);
  }
  ~DeviceJob() {
    job_.reset();
    // Aborts are other threads' work.
    for (int i = 0; i < 5000 && nccl_->num_alive() > 0; ++i) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(nccl_->num_alive(), 0);
    EXPECT_EQ(nccl_->violations(), Calls{});
  }

  [[nodiscard]] Job& job() { return *job_; }
  [[nodiscard]] DeferredQueues& queues() { return queues_; }
  [[nodiscard]] FakeNccl& nccl() { return *nccl_; }
  [[nodiscard]] DeviceGroups::Transport transport_of(const std::vector<int>& ranks) {
    return job_->table().devices()->transport_of(ranks);
  }
  std::unique_ptr<ProcessGroup> join(const std::vector<int>& ranks, double seconds = 40) {
    return job_->table().join(ranks, job_->next_attempt(), waiter_of(seconds));
  }

 private:
  static Waiter waiter_of(double seconds) {
    const auto limit =
        std::chrono::duration_cast<Waiter::Clock::duration>(std::chrono::duration<double>(seconds));
    return {Waiter::Clock::now() + limit, nullptr, true};
  }

  Staging staging_;
  DeferredQueues queues_;
  std::shared_ptr<FakeNccl> nccl_;
  std::optional<Job> job_;
};

/// All collectives of the group, in turns in both queues, as the same ranks' group of hosts does
/// them.
void expect_bits_of_host(DeviceJob& device, ProcessGroup& group, std::int64_t count, DType type,
                         Transport way = Transport::shared_memory) {
  Job hosts(way);
  const auto host = hosts.join(group.world_ranks());
  int number = 0;
  for (const Call& call : calls_of(*host, count, type)) {
    device.queues().use(number % 2);
    EXPECT_TRUE(call(group, [&] { device.queues().finish_used(); }) == call(*host, [] {}))
        << "call " << number << " of " << count << " elements";
    ++number;
  }
}

class DeviceGroupsTest : public testing::TestWithParam<Transport> {};
INSTANTIATE_TEST_SUITE_P(Ways, DeviceGroupsTest,
                         testing::Values(Transport::shared_memory, Transport::mpi), test::way_name);

// The stand-in sums as the host's groups do, so the bits must be theirs.
TEST_P(DeviceGroupsTest, NcclGivesWhatTheHostsGroupGives) {
  DeviceJob device({gpu_of(world_rank())}, GetParam());
  EXPECT_EQ(device.transport_of(device.job().everyone()).text,
            world_size() == 1 ? "copies on one device" : "NCCL 2.28.9");
  const auto group = device.join(device.job().everyone());
  for (const std::int64_t count : {0, 1, 1000}) {
    for (const DType type : {DType::f32, DType::f16}) {
      expect_bits_of_host(device, *group, count, type, GetParam());
    }
  }
}

TEST_P(DeviceGroupsTest, RanksThatShareAGpuGoByAnNcclThatServesThem) {
  for (const char* const asked : {"0", "1"}) {
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", asked, 1);
    DeviceJob device({.device_id = gpu_of(world_rank() / 2), .nccl_version = 23000}, GetParam());
    unsetenv("NCCL_MULTI_RANK_GPU_ENABLE");
    const std::vector<int> everyone = device.job().everyone();
    const bool do_share = world_size() > 1;
    EXPECT_EQ(device.transport_of(everyone).is_staged, do_share && *asked == '0');
    if (do_share && *asked == '1') {
      EXPECT_EQ(device.transport_of(everyone).text, "NCCL 2.30.0");
      EXPECT_EQ(device.job().table().devices()->not_comparable_reason(everyone),
                "ranks 0 and 1 share a GPU");
    }
    const auto group = device.join(everyone);
    expect_bits_of_host(device, *group, 3000, DType::bf16, GetParam());
  }
}

TEST_P(DeviceGroupsTest, RanksThatShareAGpuAreStaged) {
  DeviceJob device({gpu_of(world_rank() / 2)}, GetParam());
  const std::vector<int> everyone = device.job().everyone();
  const bool do_share = world_size() > 1;
  EXPECT_EQ(device.transport_of(everyone).is_staged, do_share);
  if (do_share) {
    EXPECT_EQ(device.transport_of(everyone).text,
              "staged through the host: ranks 0 and 1 share a GPU");
  }
  const auto violation = [&](const std::vector<int>& ranks) {
    return device.job().table().devices()->not_comparable_reason(ranks);
  };
  EXPECT_EQ(violation(everyone), do_share ? "ranks 0 and 1 share a GPU" : "");
  // A rank alone, too, where another one is on its GPU: they run side by side.
  EXPECT_EQ(violation({0}), do_share ? "ranks 0 and 1 share a GPU" : "");
  EXPECT_EQ(violation({2 % world_size()}).empty(), world_size() == 1 || world_size() == 3);
  const auto group = device.join(everyone);
  expect_bits_of_host(device, *group, 3000, DType::bf16, GetParam());
  EXPECT_EQ(device.nccl().calls(), Calls{}) << "NCCL is not even asked";
}

TEST(DeviceGroupsTest, ARankWithoutNcclOrWithAnotherOneIsStaged) {
  const int last = world_size() - 1;
  if (last == 0) GTEST_SKIP() << "there is no other rank";
  const std::string staged = "staged through the host: ";
  {
    DeviceJob device({gpu_of(world_rank()), world_rank() == last ? 0 : 22809});
    EXPECT_EQ(device.transport_of(device.job().everyone()).text,
              staged + "rank " + std::to_string(last) + " has no NCCL");
    EXPECT_EQ(device.job().table().devices()->not_comparable_reason(device.job().everyone()),
              staged + "rank " + std::to_string(last) + " has no NCCL");
    EXPECT_EQ(device.job().table().devices()->not_comparable_reason(std::vector{last}), "");
    device.join(device.job().everyone());
  }
  DeviceJob device({gpu_of(world_rank()), world_rank() == last ? 22105 : 22809});
  EXPECT_EQ(device.transport_of(device.job().everyone()).text,
            staged + "ranks 0 and " + std::to_string(last) + " have NCCL 2.28.9 and 2.21.5");
  device.join(device.job().everyone());
}

TEST(DeviceGroupsTest, AGroupOfOneCopies) {
  DeviceJob device({gpu_of(world_rank()), 0});
  EXPECT_FALSE(device.transport_of(std::vector{world_rank()}).is_staged) << "NCCL is not missed";
  const auto group = device.join({world_rank()});
  const float in = 4;
  float out = 0;
  group->all_gather(&out, &in, 1, DType::f32);
  EXPECT_EQ(out, 0.0F);
  device.queues().finish_all();
  EXPECT_EQ(out, 4.0F);
  EXPECT_EQ(device.nccl().calls(), Calls{});
}

TEST(DeviceGroupsTest, AGroupOfOneGoesByNcclWhereItIsAskedTo) {
  DeviceJob device({.device_id = gpu_of(world_rank()), .nccl_alone = true});
  EXPECT_EQ(device.transport_of({world_rank()}).text, "NCCL 2.28.9");
  const auto group = device.join({world_rank()});
  std::array<float, 2> data{4, 0};
  expect_bits_of_host(device, *group, 100, DType::bf16);
  group->all_gather(&data[1], &data[0], 1, DType::f32);
  device.queues().finish_all();
  EXPECT_EQ(data[1], 4.0F);
  EXPECT_EQ(device.nccl().calls("init").size(), 1U);
  EXPECT_GT(device.nccl().calls("all_gather").size(), 0U);
}

// Whoever can not make its half throws, whoever can is let go, and then all make another.
TEST(DeviceGroupsTest, AnErrorOfOneRankLeavesNobodyWithACommunicator) {
  if (world_size() == 1) GTEST_SKIP() << "there is no other rank";
  DeviceJob device({gpu_of(world_rank())});
  const std::vector<int> everyone = device.job().everyone();
  const bool fails = world_rank() == world_size() - 1;
  if (fails) device.nccl().fail_behind("init", nccl::Result::unhandled_cuda_error);
  try {
    device.join(everyone);
    ADD_FAILURE() << "a communicator without one of its ranks";
  } catch (const DeviceError&) {
    EXPECT_TRUE(fails);
  } catch (const CollectiveError& error) {
    EXPECT_FALSE(fails);
    EXPECT_EQ(error.why(), CollectiveError::Cause::aborted) << "it is told at once";
  }
  device.job().table().abandon(everyone);
  device.job().world().barrier();
  const auto group =
      device.job().table().join(everyone, device.job().next_attempt(), device.job().waiter());
  float data = 1;
  group->all_reduce_sum(&data, 1, DType::f32);
  device.queues().prepare({1, 0, 0}, device.job().waiter());
  EXPECT_EQ(data, static_cast<float>(everyone.size()));
  EXPECT_EQ(device.nccl().calls("abort").size(), 1U);
  EXPECT_EQ(device.nccl().calls("init").size(), 2U);
}

TEST(DeviceGroupsTest, APeerThatDoesNotCallIsADeadlineOfTheQueue) {
  if (world_size() == 1) GTEST_SKIP() << "there is no other rank";
  DeviceJob device({gpu_of(world_rank()), 22809, 8, 1.5});
  const std::vector<int> everyone = device.job().everyone();
  const auto group = device.join(everyone);
  if (world_rank() > 0) {
    float data = 1;
    group->all_reduce_sum(&data, 1, DType::f32);
    EXPECT_THROW(device.queues().finish_used(), CollectiveError);
  }
  device.job().world().barrier();
  device.job().table().abandon(everyone);
}

TEST(DeviceGroupsTest, RanksAtDifferentCollectivesAreNamed) {
  if (world_size() == 1) GTEST_SKIP() << "there is no other rank";
  DeviceJob device({gpu_of(world_rank())});
  const auto group = device.join(device.job().everyone());
  std::vector<float> data(8);
  const std::int64_t count = world_rank() == 0 ? 1 : 2;
  group->all_reduce_sum(data.data(), count, DType::f32);
  EXPECT_THROW(device.queues().finish_used(), LogicError);
  device.job().world().barrier();
}

// As on a GPU: a queue that waits for a peer in one communicator does not come to the other.
TEST(DeviceGroupsTest, CommunicatorsInDifferentOrdersOnDifferentRanksHang) {
  if (world_size() != 4) GTEST_SKIP() << "needs parts of two ranks beside all";
  DeviceJob device({gpu_of(world_rank()), 22809, 8, 1.5});
  const auto group = device.join(device.job().everyone());
  std::array<float, 2> data{1, 1};
  const auto reduce = [&](bool all) {
    const RankRange part = range_of(world_rank(), 1, 2);
    group->all_reduce_average(&data[all ? 0 : 1], 1, DType::f32, all ? RankRange{} : part);
  };
  reduce(true);
  reduce(false);
  device.queues().finish_used();
  const bool all_first = world_rank() % 2 == 0;
  reduce(all_first);
  reduce(!all_first);
  EXPECT_THROW(device.queues().finish_used(), CollectiveError);
  device.job().world().barrier();
  device.job().table().abandon(device.job().everyone());
}

// Random groups side by side, more of them than communicators are kept: what a member closes to
// make room all members that have it close then, the oldest first, and no collective mistakes its
// peers. What not all of its ranks close is aborted, and never closed by those who did.
TEST(DeviceGroupsTest, MembersCloseTheSameCommunicatorsInTheSameOrder) {
  constexpr int most = 2;
  struct Made {
    std::vector<int> ranks;
    double attempt = 0;
    bool is_kept = true;
  };
  DeviceJob device({gpu_of(world_rank()), 22809, most});
  std::mt19937 generator(7);
  std::vector<Made> made;  // the communicators of this rank, by number
  const auto is_aborted = [&](std::size_t index) {
    const std::string call = "abort " + std::to_string(index + 1);
    for (int i = 0; i < 5000 && device.nccl().calls(call).empty(); ++i)
      std::this_thread::sleep_for(1ms);
    return !device.nccl().calls(call).empty();
  };
  std::size_t num_closed = 0, num_calls = 0;
  for (int round = 1; round <= 60; ++round) {
    std::vector<int> mine;
    const auto bits = static_cast<unsigned>(generator());
    for (int rank = 0; rank < world_size(); ++rank)
      if ((bits >> rank & 1U) == (bits >> world_rank() & 1U)) mine.push_back(rank);
    const auto group = device.join(mine);
    std::vector<double> closed;
    const Calls calls = device.nccl().calls();
    for (; num_calls < calls.size(); ++num_calls) {
      const std::string& call = calls[num_calls];
      if (call.starts_with("init ")) made.push_back({mine, static_cast<double>(round)});
      if (!call.starts_with("finalize ")) continue;
      Made& one = made.at(static_cast<std::size_t>(std::stoi(call.substr(9))) - 1);
      EXPECT_TRUE(std::ranges::includes(mine, one.ranks)) << "NCCL would wait for the others";
      one.is_kept = false;
      closed.push_back(one.attempt);
    }
    EXPECT_TRUE(std::ranges::is_sorted(closed));
    num_closed += closed.size();
    closed.resize(8);
    for (const double theirs : group->exchange(closed)) {
      for (std::size_t i = 0; i < made.size(); ++i) {
        if (made[i].is_kept && made[i].attempt == theirs) {
          EXPECT_TRUE(is_aborted(i)) << "a member closed it, and this rank did not";
        }
      }
    }
    auto data = static_cast<float>(world_rank());
    group->all_reduce_sum(&data, 1, DType::f32);
    device.queues().finish_used();
    ASSERT_EQ(data, static_cast<float>(std::accumulate(mine.begin(), mine.end(), 0)));
    // What a peer has closed alone is aborted where its ranks meet again.
    for (int i = 0; i < 5000 && device.nccl().num_alive() > most; ++i)
      std::this_thread::sleep_for(1ms);
    ASSERT_LE(device.nccl().num_alive(), most);
  }
  if (world_size() == 4) {
    EXPECT_GT(num_closed, 3U) << "else nothing is tested";
  }
}

}  // namespace
}  // namespace dstune
