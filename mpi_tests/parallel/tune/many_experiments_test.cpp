/// Experiments come and go, the process stays as it is: resident memory, open files, mapped files
/// (shared memory among them), threads, and the GPU's memory where there is one. A few hundred
/// experiments where nothing is said; DSTUNE_EXPERIMENTS says how many.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <numeric>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/prctl.h>

#include "dstune/base/error.hpp"
#include "dstune/comm/mailbox.hpp"
#include "dstune/comm/nodes.hpp"
#include "dstune/device/cuda.hpp"
#include "dstune/train/executor.hpp"
#include "dstune/tune/worker.hpp"
#include "experiments_device.hpp"

namespace dstune {
namespace {

/// What a process holds.
struct Holdings {
  std::int64_t resident_bytes = 0;
  int open_files = 0;
  int mapped_files = 0;
  int threads = 0;
  std::int64_t gpu_free_bytes = 0;  ///< what others hold among it
};

int entries_of(const char* folder) {
  const auto all = std::filesystem::directory_iterator(folder);
  return static_cast<int>(std::distance(begin(all), end(all)));
}

Holdings holdings() {
  std::set<std::string> mapped;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    const std::size_t path = line.find('/');
    if (path != line.npos) mapped.insert(line.substr(path));
  }
  return {process_resident_bytes(), entries_of("/proc/self/fd"), static_cast<int>(mapped.size()),
          entries_of("/proc/self/task"), free_cuda_bytes()};
}

std::ostream& operator<<(std::ostream& out, const Holdings& held) {
  return out << held.resident_bytes / 1024 << " KiB resident, " << held.open_files
             << " open files, " << held.mapped_files << " mapped files, " << held.threads
             << " threads, " << held.gpu_free_bytes / 1024 << " KiB free on the GPU";
}

ModelSpec tiny_model() {
  ModelSpec model;
  model.hidden_size = 32;
  model.num_layers = 2;
  model.num_heads = model.num_kv_heads = 2;
  model.head_size = 16;
  model.intermediate_size = 128;
  model.vocab_size = 101;
  model.max_positions = 16;
  return model;
}

class ManyExperimentsTest : public testing::Test {
 protected:
  /// The kernel replaces pages of a long-lived heap by huge ones when it finds the time: 10,000
  /// experiments on a busy machine would seem to hold 16 MiB more, and more again.
  static void SetUpTestSuite() { prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); }

  ManyExperimentsTest()
      : world_(Communicator::world().duplicate()),
        node_(world_.split_shared()),
        to_workers_(world_.duplicate()),
        to_controller_(world_.duplicate()),
        topology_(find_topology(world_, node_)),
        groups_(world_, node_, topology_, known_groups(), {.device = device_.groups()}) {}

  void SetUp() override {
    if (!device_.violation().empty()) GTEST_SKIP() << device_.violation();
  }

  /// So many experiments of this workload, one after the other, on groups that change. Collective
  /// over the world.
  void run(const WorkloadSpec& workload, int count) {
    MpiMailbox mailbox(to_workers_, to_controller_, MpiMailbox::Side::worker);
    const Instruments instruments = make_instruments({workload});
    Worker worker({.model = &model_,
                   .instruments = &instruments,
                   .measure = {1, 1, 0.0},
                   .topology = &topology_,
                   .groups = &groups_,
                   .device = &device_.device(),
                   .mailbox = &mailbox});
    std::thread controller;
    if (world_.rank() == 0) controller = std::thread([&] { control(count); });
    worker.run();
    if (controller.joinable()) controller.join();
    EXPECT_EQ(unexpected_, 0);
  }

  /// Expects that one of up to three times `count` experiments leaves nothing behind that those
  /// before did not: what drivers and heaps take now and then ends, a leak does not.
  void expect_flat(const WorkloadSpec& workload, int count) {
    run(workload, std::min(count, 200));
    std::string grown;
    constexpr int times = 3;
    for (int time = 1; time <= times; ++time) {
      const Holdings before = holdings();
      run(workload, count);
      const Holdings after = holdings();
      if (world_.rank() == world_.size() - 1)
        std::cout << "rank " << world_.rank() << ", " << count
                  << " experiments\n  before: " << before << "\n  after:  " << after << std::endl;
      grown = growth(before, after);
      // All ranks run as often as those that hold more.
      const auto mine = std::byte{grown.empty() ? std::uint8_t{0} : std::uint8_t{1}};
      const std::vector<Bytes> all = world_.all_gather({&mine, 1});
      if (std::ranges::all_of(all, [](const Bytes& one) { return one.front() == std::byte{0}; }))
        return;
    }
    EXPECT_EQ(grown, "") << "after " << times << " times " << count << " experiments";
  }

  /// What grew, or "".
  static std::string growth(const Holdings& before, const Holdings& after) {
    std::string grown;
    if (after.open_files > before.open_files) grown += "open files; ";
    if (after.mapped_files > before.mapped_files) grown += "mapped files; ";
    if (after.threads > before.threads) grown += "threads; ";
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    // The heap's own tides; less than 200 bytes for each of 10,000. Sanitizers keep what was freed.
    if (after.resident_bytes >= before.resident_bytes + test::ExperimentsDevice::tide_bytes)
      grown += "resident memory; ";
#endif
    // CUDA takes memory of the GPU in pieces of 2 MiB.
    if (after.gpu_free_bytes < before.gpu_free_bytes - (4 << 20)) grown += "memory of the GPU; ";
    return grown;
  }

  static int count_of_experiments(int fallback) {
    const char* const text = std::getenv("DSTUNE_EXPERIMENTS");
    return text == nullptr ? fallback : std::atoi(text);
  }

 private:
  [[nodiscard]] std::vector<int> first_ranks(int count) const {
    std::vector<int> ranks(static_cast<std::size_t>(count));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  [[nodiscard]] std::vector<std::vector<int>> known_groups() const {
    std::vector<std::vector<int>> groups;
    for (int size = 1; size <= topology_.world_size; ++size) groups.push_back(first_ranks(size));
    return groups;
  }

  /// Stages, precisions, batch and group sizes in turn; one in eight does not fit.
  message::Assign assignment(int number) {
    const bool fits = number % 8 != 7;
    message::Assign assign;
    assign.attempt = ++attempt_;
    assign.experiment = "e" + std::to_string(number);
    assign.config.zero_stage = number % 4;
    assign.config.precision = static_cast<Precision>(number / 4 % 3);
    assign.config.loss_scale.initial_power = 8;
    assign.config.micro_batch = fits ? 1 + number % 3 : 4096;
    assign.config.accumulation_steps = 1 + number % 2;
    assign.config.sequence_length = 16;
    assign.config.offload_optimizer = number % 5 == 0 ? OffloadDevice::cpu : OffloadDevice::none;
    assign.world_ranks = first_ranks(1 + number % topology_.world_size);
    assign.timeout_s = 50;
    return assign;
  }

  /// Rank 0's other half, as far as it is needed.
  void control(int count) {
    MpiMailbox mailbox(to_workers_, to_controller_, MpiMailbox::Side::controller);
    for (int number = 0; number < count; ++number) {
      const message::Assign assign = assignment(number);
      for (const int rank : assign.world_ranks) mailbox.send(rank, encode(Message(assign)));
      std::size_t ready = 0;
      for (bool is_over = false; !is_over;) {
        const auto received = mailbox.try_receive();
        if (!received) {
          std::this_thread::yield();
          continue;
        }
        const Message message = decode(received->data);
        if (std::holds_alternative<message::Ready>(message) &&
            ++ready == assign.world_ranks.size()) {
          for (const int rank : assign.world_ranks)
            mailbox.send(rank, encode(Message(message::Go{assign.attempt})));
        }
        const auto* const outcome = std::get_if<message::Outcome>(&message);
        is_over = outcome != nullptr || std::holds_alternative<message::Gone>(message);
        if (is_over) check(assign, outcome);
      }
    }
    for (int rank = 0; rank < world_.size(); ++rank)
      mailbox.send(rank, encode(Message(message::Quit{})));
    mailbox.flush(5);
  }

  void check(const message::Assign& assign, const message::Outcome* outcome) {
    const Status expected =
        assign.config.micro_batch < 4096 || !trains_ ? Status::ok : Status::out_of_memory;
    if (outcome != nullptr && outcome->measurement.status == expected) return;
    if (++unexpected_ == 1)
      std::cout << assign.experiment << ": "
                << (outcome == nullptr ? "gone" : outcome->measurement.reason) << std::endl;
  }

 protected:
  bool trains_ = true;

 private:
  Communicator world_, node_, to_workers_, to_controller_;
  Topology topology_;
  test::ExperimentsDevice device_;
  GroupTable groups_;
  ModelSpec model_ = tiny_model();
  std::uint64_t attempt_ = 0;
  int unexpected_ = 0;
};

TEST_F(ManyExperimentsTest, OfNoWorkLeaveNothingBehind) {
  trains_ = false;
  WorkloadSpec synthetic;
  synthetic.kind = WorkloadKind::synthetic;
  expect_flat(synthetic, count_of_experiments(400));
}

TEST_F(ManyExperimentsTest, OfATinyTransformerLeaveNothingBehind) {
  expect_flat({}, count_of_experiments(200));
}

}  // namespace
}  // namespace dstune
