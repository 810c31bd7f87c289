/// A plan that lacks one of the waits that it needs has other losses in some order, or writes where
/// it must not.

#include <string>
#include <variant>
#include <vector>

#include "replay.hpp"
#include "shuffled_training.hpp"

namespace dstune {
namespace {

using test::Golden;

class DroppedWaitsTest : public test::ShuffledTraining {
 protected:
  static constexpr int few_steps = 3;  // what is wrong in a steady one shows in the next
  static constexpr std::uint64_t max_orders = 24;
  static constexpr double min_share = 0.6;

  void SetUp() override {
    if (job().size() > 2) GTEST_SKIP() << "shows no more than on two ranks";
    model_ = golden_.model;
    model_.num_layers = 1;
    config_ = golden_.on(job().size(), 0, 1);
    config_.micro_batch = 1;
    config_.sequence_length = 4;
    config_.overlap_comm = true;
  }

  /// The waits of a plan by segment and place.
  struct Place {
    std::vector<Segment> StepPlan::*segments;
    std::size_t segment, step;
  };
  static std::vector<Place> waits(const StepPlan& plan) {
    std::vector<Place> found;
    for (const auto segments : {&StepPlan::tracing, &StepPlan::cycle}) {
      for (std::size_t segment = 0; segment < (plan.*segments).size(); ++segment) {
        const std::vector<Step>& steps = (plan.*segments)[segment].steps;
        for (std::size_t step = 0; step < steps.size(); ++step) {
          if (std::holds_alternative<op::Wait>(steps[step].operation))
            found.push_back({segments, segment, step});
        }
      }
    }
    return found;
  }
  static StepPlan without(const StepPlan& plan, const Place& place) {
    StepPlan result = plan;
    std::vector<Step>& steps = (result.*place.segments)[place.segment].steps;
    steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(place.step));
    return result;
  }

  static std::vector<std::string> problems_of_order(const StepPlan& plan) {
    std::vector<std::string> problems = test::Replay(plan, true).problems();
    std::erase_if(problems, [](const std::string& problem) {
      return problem.find("without an event") == problem.npos;
    });
    return problems;
  }

  /// Whether it is what it should be, on every rank. Collective over the job.
  bool is_right(const StepPlan& plan, const Course& expected, std::uint64_t order) const {
    const std::unique_ptr<ProcessGroup> group = job().join();
    test::ShuffledDevice device(256 << 20, order);
    test::ShuffledGroup shuffled(*group, device.shuffled_queues());
    Executor executor(plan, device, shuffled, golden_.seed, Guard::red_zones);
    const Course found = run(executor, few_steps);
    const bool mine = found == expected && executor.damage().empty();
    const std::vector<double> all = group->exchange(std::vector{mine ? 1.0 : 0.0});
    return std::ranges::count(all, 1.0) == std::ssize(all);
  }

  /// Drops each wait of the plan in turn. Most that are needed are missed in one of so few orders;
  /// some only where a queue runs ahead between two operations of another. Collective over the job.
  void expect_wrongs() const {
    const StepPlan plan = plan_of(model_, config_);
    CpuDevice device(256 << 20, 1);
    const std::unique_ptr<ProcessGroup> group = job().join();
    Executor executor(plan, device, *group, golden_.seed);
    const Course expected = run(executor, few_steps);
    int needed = 0, shown = 0;
    for (const Place& place : waits(plan)) {
      const StepPlan mutated = without(plan, place);
      SCOPED_TRACE("segment " + std::to_string(place.segment) + ", step " +
                   std::to_string(place.step));
      // What other waits say, too, or the end of a step, is not missed.
      const std::vector<std::string> problems = problems_of_order(mutated);
      if (problems.empty()) {
        EXPECT_TRUE(is_right(mutated, expected, 1));
        continue;
      }
      ++needed;
      std::uint64_t order = 1;
      while (order <= max_orders && is_right(mutated, expected, order)) ++order;
      shown += static_cast<int>(order <= max_orders);
    }
    RecordProperty("needed", needed);
    RecordProperty("shown", shown);
    EXPECT_GT(needed, 0);
    EXPECT_GE(shown, min_share * needed) << "of " << needed;
  }

  Golden golden_{"gpt2"};
  ModelSpec model_;
  TrainingConfig config_;
};

TEST_F(DroppedWaitsTest, OfReductionsShow) {
  if (job().size() == 1) GTEST_SKIP() << "nothing is reduced";
  config_.zero_stage = 2;
  config_.reduce_bucket_size = 10'000;
  expect_wrongs();
}

TEST_F(DroppedWaitsTest, OfGathersShow) {
  if (job().size() == 1) GTEST_SKIP() << "nothing is gathered";
  config_.zero_stage = 3;
  config_.stage3_param_persistence_threshold = 100;
  config_.stage3_prefetch_bucket_size = 9'000;
  expect_wrongs();
}

TEST_F(DroppedWaitsTest, OfWhatIsOffloadedShow) {
  config_.zero_stage = 3;
  config_.offload_param = config_.offload_optimizer = OffloadDevice::cpu;
  config_.sub_group_size = 20'000;
  expect_wrongs();
}

TEST_F(DroppedWaitsTest, OfCheckpointsOnTheHostShow) {
  config_.recompute = Recompute::block;
  config_.cpu_checkpointing = true;
  model_.num_layers = 6;
  expect_wrongs();
}

}  // namespace
}  // namespace dstune
