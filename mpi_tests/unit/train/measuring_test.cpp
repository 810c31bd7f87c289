#include <algorithm>
#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "dstune/base/error.hpp"
#include "dstune/kernels/cuda.hpp"
#include "dstune/train/workload.hpp"
#include "thread_group.hpp"

namespace dstune {
namespace {

using test::run_ranks;
using testing::Contains;
using testing::HasSubstr;
using testing::Key;

/// A workload of which a test says what happens on which rank.
class ScriptedWorkload : public Workload {
 public:
  std::function<void()> on_build = [] {};
  std::function<void()> on_initialize = [] {};
  std::function<StepSample(std::int64_t)> on_step = [](std::int64_t step) {
    return StepSample{.loss = 100.0 - static_cast<double>(step), .step_s = 0.25};
  };
  PeakMemory peak;
  std::vector<Fallback> fell_back;
  bool simulated_times = true;
  bool talks = false, cold_is_short = false, is_raced_early = false;
  WarmupNeed need{};
  std::vector<int>* told = nullptr;  ///< after how many steps it was warm

  void build() override { on_build(); }
  void initialize() override { on_initialize(); }
  StepSample step(std::int64_t step) override { return on_step(step); }
  [[nodiscard]] PeakMemory peak_memory() const override { return peak; }
  [[nodiscard]] std::vector<Fallback> fallbacks() const override { return fell_back; }
  [[nodiscard]] double flops_per_step() const override { return 1e9; }
  [[nodiscard]] WarmupNeed warmup_need() const override { return need; }
  void note_warm_after(int steps) override {
    if (told != nullptr) told->push_back(steps);
  }
  [[nodiscard]] WorkloadTraits traits() const override {
    return {.micro_steps = 4,
            .has_simulated_times = simulated_times,
            .has_short_cold_step = cold_is_short,
            .is_raced_early = is_raced_early,
            .talks_to_peers = talks};
  }
};

/// What every rank measured; the body prepares a rank's workload and hooks.
std::vector<Measurement> measure_on(
    int ranks, const std::function<void(int, ScriptedWorkload&, MeasureHooks&)>& prepare) {
  std::vector<Measurement> results(static_cast<std::size_t>(ranks));
  const auto thrown = run_ranks(ranks, [&](ProcessGroup& group) {
    ScriptedWorkload workload;
    MeasureHooks hooks;
    prepare(group.group_rank(), workload, hooks);
    results[static_cast<std::size_t>(group.group_rank())] = measure(workload, group, {}, hooks);
  });
  for (const std::exception_ptr& error : thrown) EXPECT_EQ(error, nullptr);
  return results;
}

// fp16: steps without an update have losses and times, which count for nothing.
TEST(MeasureTest, SkippedStepsAreNotTimed) {
  const auto results = measure_on(2, [](int, ScriptedWorkload& workload, MeasureHooks&) {
    workload.on_step = [](std::int64_t step) {
      StepSample sample{.loss = 1.0, .step_s = 0.5, .forward_s = 4, .backward_s = 8, .update_s = 1};
      sample.skipped = step < 2 || step == 6;
      if (sample.skipped) sample = {2.0, 0.125, 100, 100, 100, true, {}};
      return sample;
    };
  });
  for (const Measurement& result : results) {
    EXPECT_EQ(result.status, Status::ok);
    EXPECT_EQ(result.skipped_steps, (std::vector<std::int64_t>{0, 1, 6}));
    EXPECT_EQ(result.warmup_steps, 5);  // two skipped and three that are warm-up
    EXPECT_EQ(result.step_times_s,
              (std::vector<double>{0.125, 0.125, 0.5, 0.5, 0.5, 0.5, 0.125, 0.5, 0.5, 0.5, 0.5}));
    EXPECT_EQ(result.losses.size(), 11U);
    EXPECT_EQ(result.losses[6], 2.0);
    EXPECT_EQ(timed_steps_s(result), std::vector<double>(5, 0.5));
    EXPECT_DOUBLE_EQ(result.forward_s, 1.0);
    EXPECT_DOUBLE_EQ(result.backward_s, 2.0);
    EXPECT_DOUBLE_EQ(result.update_s, 1.0);
  }
}

TEST(MeasureTest, EndsWhereNoStepMakesItsUpdate) {
  const auto results = measure_on(2, [](int, ScriptedWorkload& workload, MeasureHooks&) {
    workload.talks = true;
    workload.on_step = [](std::int64_t step) {
      StepSample sample{.step_s = 0.5};
      sample.skipped = step > 0;
      return sample;
    };
  });
  for (const Measurement& result : results) {
    EXPECT_EQ(result.status, Status::failed);
    EXPECT_THAT(result.reason, HasSubstr("overflowed in 100 steps in a row"));
    EXPECT_EQ(result.step_times_s.size(), 100U);
  }
}

TEST(MeasureTest, AnEndThatAllRanksSeeIsAResult) {
  const auto results = measure_on(2, [](int, ScriptedWorkload& workload, MeasureHooks&) {
    workload.talks = true;
    workload.on_step = [](std::int64_t step) {
      StepSample sample{.step_s = 0.5};
      if (step == 2) sample.failure = "no further";
      return sample;
    };
  });
  for (const Measurement& result : results) {
    EXPECT_EQ(result.status, Status::failed);
    EXPECT_THAT(result.reason, HasSubstr("no further"));
    EXPECT_EQ(result.step_times_s.size(), 2U);
  }
}

// The leader's result has them whichever rank it was.
TEST(MeasureTest, FallbacksAreThoseOfAllRanks) {
  const std::string long_text(500, 'a');
  const auto results = measure_on(3, [&](int rank, ScriptedWorkload& workload, MeasureHooks&) {
    if (rank > 0) workload.fell_back = {{"no graphs"}, {"a slow disk", true}};
    if (rank == 2) workload.fell_back.insert(workload.fell_back.end(), {{long_text}, {"last"}});
  });
  for (const Measurement& result : results) {
    EXPECT_THAT(result.fallbacks,
                testing::ElementsAre("no graphs", "a slow disk", long_text, "last"));
    EXPECT_EQ(result.not_comparable, "no graphs; " + long_text + "; and 1 more");
  }
  for (const Measurement& result : measure_on(2, [](int, auto&, MeasureHooks&) {})) {
    EXPECT_THAT(result.fallbacks, testing::IsEmpty());
    EXPECT_EQ(result.not_comparable, "");
  }
}

TEST(MeasureTest, TimesAreTheSlowestRanks) {
  const auto results = measure_on(3, [](int rank, ScriptedWorkload& workload, MeasureHooks&) {
    workload.on_step = [rank](std::int64_t step) {
      // Rank 1 is the slowest in even steps, rank 2 in odd ones.
      const double step_s = rank == 1 + step % 2 ? 0.5 : 0.25;
      return StepSample{1.0, step_s, 8.0 * step_s, 4.0 * step_s, step_s};
    };
  });
  for (const Measurement& result : results) {
    EXPECT_EQ(result.status, Status::ok);
    EXPECT_EQ(result.reason, "");
    EXPECT_EQ(result.warmup_steps, 3);
    EXPECT_EQ(result.step_times_s, std::vector<double>(8, 0.5));
    EXPECT_EQ(result.losses, std::vector<double>(8, 1.0));
    EXPECT_DOUBLE_EQ(result.forward_s, 1.0);  // of one of four micro-steps
    EXPECT_DOUBLE_EQ(result.backward_s, 0.5);
    EXPECT_DOUBLE_EQ(result.update_s, 0.5);
    EXPECT_EQ(result.flops_per_step, 1e9);
    EXPECT_THAT(result.world_ranks, testing::ElementsAre(10, 11, 12));
    EXPECT_THAT(result.overhead_s, Contains(Key("build")));
    EXPECT_THAT(result.overhead_s, Contains(Key("initialize")));
    EXPECT_THAT(result.overhead_s, Contains(Key("teardown")));
  }
}

TEST(MeasureTest, WarmupIsNoPartOfThePhases) {
  const auto results = measure_on(1, [](int, ScriptedWorkload& workload, MeasureHooks&) {
    workload.on_step = [](std::int64_t step) {
      return StepSample{0, 1, step < 3 ? 1000.0 : 4.0, 0, 0};
    };
  });
  EXPECT_DOUBLE_EQ(results[0].forward_s, 1.0);
}

TEST(MeasureTest, StepsWithoutALossLeaveNone) {
  const auto results = measure_on(2, [](int, ScriptedWorkload& workload, MeasureHooks&) {
    workload.on_step = [](std::int64_t) { return StepSample{std::nan(""), 0}; };
  });
  EXPECT_THAT(results[0].losses, testing::IsEmpty());
  EXPECT_EQ(results[0].step_times_s.size(), 8U);
}

TEST(MeasureTest, WarmsUpUntilStepsSettleWhereTimesAreMeasured) {
  std::vector<int> told;
  const auto results = measure_on(2, [&](int rank, ScriptedWorkload& workload, MeasureHooks&) {
    workload.simulated_times = false;
    workload.on_step = [](std::int64_t step) {
      return StepSample{1, step < 4 ? 0.1 / static_cast<double>(step + 1) : 0.01};
    };
    if (rank == 0) workload.told = &told;
  });
  EXPECT_EQ(results[1].warmup_steps, 6);
  EXPECT_EQ(results[1].step_times_s.size(), 11U);
  EXPECT_THAT(told, testing::ElementsAre(4));
}

TEST(MeasureTest, WarmsUpAsTheRankNeedsThatNeedsMost) {
  const auto warmup_steps = [](WarmupNeed first, WarmupNeed second) {
    return measure_on(2,
                      [&](int rank, ScriptedWorkload& workload, MeasureHooks&) {
                        workload.simulated_times = false;
                        workload.need = rank == 0 ? first : second;
                      })[1]
        .warmup_steps;
  };
  EXPECT_EQ(warmup_steps({7, false}, {1, false}), 7);
  EXPECT_EQ(warmup_steps({1, false}, {7, false}), 7);
  EXPECT_EQ(warmup_steps({1, false}, {1, false}), 1);
  EXPECT_EQ(warmup_steps({1, false}, {1, true}), 2) << "a rank has not run it yet";
}

TEST(MeasureTest, WhatStayedBuiltGoesOn) {
  std::vector<std::int64_t> steps;
  ScriptedWorkload workload;
  workload.simulated_times = false;
  workload.on_build = workload.on_initialize = [] { throw Error("it is built"); };
  workload.on_step = [&](std::int64_t step) {
    steps.push_back(step);
    return StepSample{1, 0.25};
  };
  SelfGroup group(0);
  int readies = 0;
  MeasureHooks hooks;
  hooks.ready = [&] { ++readies; };
  const MeasureOptions options;
  MeasuredRun run(workload, group, options, hooks, {.steps = 8, .warmup_steps = 1});
  ASSERT_TRUE(run.build());
  run.begin();
  EXPECT_TRUE(run.go_on(4));
  EXPECT_EQ(run.steps_made(), 12);
  EXPECT_FALSE(run.go_on(100)) << "five timed steps are enough";
  EXPECT_EQ(run.steps_made(), 14);
  const Measurement result = run.end();
  EXPECT_EQ(result.status, Status::ok) << result.reason;
  EXPECT_EQ(result.warmup_steps, 1);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{8, 9, 10, 11, 12, 13}));
  EXPECT_EQ(readies, 1);
}

/// A challenger of the best, which takes so long a step, and whose own steps take these times.
Measurement raced(double best_s, bool cold_is_short, const std::vector<double>& times_s) {
  return measure_on(2, [&](int rank, ScriptedWorkload& workload, MeasureHooks& hooks) {
    workload.simulated_times = false;
    workload.cold_is_short = cold_is_short;
    workload.on_step = [&](std::int64_t step) {
      return StepSample{1, times_s[std::min(times_s.size() - 1, static_cast<std::size_t>(step))]};
    };
    if (rank == 0) hooks.incumbent = [best_s] { return IncumbentEstimate{best_s, 0, 0.01, 4}; };
  })[1];
}

TEST(MeasureTest, AHopelessChallengerEndsAtItsFirstTimedStep) {
  const Measurement lost = raced(0.1, true, {1, 0.9});
  EXPECT_EQ(lost.status, Status::raced_out);
  EXPECT_EQ(lost.reason, "stopped after 1 step: clearly slower than the best so far");
  EXPECT_EQ(lost.warmup_steps, 3);
  EXPECT_EQ(lost.step_times_s.size(), 4U);
  EXPECT_EQ(raced(0.1, true, {0.4, 0.3}).step_times_s.size(), 3U + 5U) << "the next look";
}

TEST(MeasureTest, AFirstStepEndsAChallengerWhereBeingColdDoesNotExplainIt) {
  const Measurement lost = raced(0.1, true, {34, 30});
  EXPECT_EQ(lost.status, Status::raced_out);
  EXPECT_EQ(lost.step_times_s, std::vector<double>{34});
  EXPECT_EQ(lost.warmup_steps, 0) << "its only step stands for its speed";
  EXPECT_EQ(timed_steps_s(lost), std::vector<double>{34});
  EXPECT_FALSE(lost.energy_j);
  // Foreign code may compile for minutes.
  EXPECT_GT(raced(0.1, false, {34, 0.1}).step_times_s.size(), 5U);
  EXPECT_EQ(raced(0.1, true, {9, 0.1}).status, Status::ok);
}

TEST(MeasureTest, OutOfMemoryOnOneRankIsEveryRanksResult) {
  std::atomic<int> readies = 0;
  const auto results =
      measure_on(3, [&](int rank, ScriptedWorkload& workload, MeasureHooks& hooks) {
        if (rank == 1) workload.on_build = [] { throw OutOfMemory(3 << 20, 1 << 20, "the arena"); };
        hooks.ready = [&] { ++readies; };
      });
  for (const Measurement& result : results) {
    EXPECT_EQ(result.status, Status::out_of_memory);
    EXPECT_THAT(result.reason, HasSubstr("rank 11: the arena"));
    EXPECT_THAT(result.reason, HasSubstr("3.00 MiB"));
    EXPECT_THAT(result.reason, HasSubstr("1.00 MiB"));
    EXPECT_THAT(result.step_times_s, testing::IsEmpty());
  }
  EXPECT_EQ(readies, 0);
}

TEST(MeasureTest, TheLowestFailingRankGivesTheReason) {
  const std::string long_reason = "begin" + std::string(600, '.') + "end";
  const auto results = measure_on(4, [&](int rank, ScriptedWorkload& workload, MeasureHooks&) {
    if (rank >= 2)
      workload.on_build = [&, rank] { throw Error(rank == 2 ? long_reason : "another"); };
  });
  for (const Measurement& result : results) {
    EXPECT_EQ(result.status, Status::failed);
    EXPECT_EQ(result.reason, "rank 12: " + long_reason);
  }
}

TEST(MeasureTest, AFailureInAStepKeepsTheStepsBeforeIt) {
  const auto results = measure_on(3, [](int rank, ScriptedWorkload& workload, MeasureHooks&) {
    if (rank == 2) {
      workload.on_step = [](std::int64_t step) {
        if (step == 2) throw Error("lost its way");
        return StepSample{1, 0.25};
      };
    }
  });
  for (const Measurement& result : results) {
    EXPECT_EQ(result.status, Status::failed);
    EXPECT_EQ(result.reason, "rank 12: lost its way");
    EXPECT_EQ(result.step_times_s.size(), 2U);
  }
}

TEST(MeasureTest, AFailureInInitializeIsAgreedOn) {
  const auto results = measure_on(2, [](int rank, ScriptedWorkload& workload, MeasureHooks&) {
    if (rank == 0) workload.on_initialize = [] { throw std::bad_alloc(); };
  });
  EXPECT_EQ(results[1].status, Status::out_of_memory);
  EXPECT_THAT(results[1].reason, HasSubstr("rank 10"));
}

// A launch that finds no memory for its kernel's code, for instance.
TEST(MeasureTest, MemoryThatAKernelLacksIsOutOfMemory) {
  const auto results = measure_on(2, [](int rank, ScriptedWorkload& workload, MeasureHooks&) {
    if (rank == 1) {
      workload.on_step = [](std::int64_t) -> StepSample {
        throw kernels::CudaOutOfMemory("CUDA: no memory for a launch");
      };
    }
  });
  for (const Measurement& result : results) {
    EXPECT_EQ(result.status, Status::out_of_memory);
    EXPECT_EQ(result.reason, "rank 11: CUDA: no memory for a launch");
  }
}

TEST(MeasureTest, NobodyIsLeftToAgreeWithInsideACollective) {
  const auto thrown = run_ranks(2, [](ProcessGroup& group) {
    ScriptedWorkload workload;
    workload.talks = true;
    if (group.group_rank() == 1) {
      workload.on_step = [](std::int64_t) -> StepSample { throw Error("broken pipe"); };
    }
    measure(workload, group, {}, {});
  });
  ASSERT_NE(thrown[0], nullptr);
  ASSERT_NE(thrown[1], nullptr);
  try {
    std::rethrow_exception(thrown[1]);
  } catch (const StepFailure& error) {
    EXPECT_EQ(error.why(), CollectiveError::Cause::aborted);
    EXPECT_EQ(error.status(), Status::failed);
    EXPECT_THAT(error.what(), HasSubstr("broken pipe"));
  }
  try {
    std::rethrow_exception(thrown[0]);
  } catch (const CollectiveError& error) {
    EXPECT_EQ(dynamic_cast<const StepFailure*>(&error), nullptr) << "only what it saw of another's";
  }
}

// What it threw is agreed on elsewhere; a rank that leaves for good agrees on nothing.
TEST(MeasureTest, ARankWithoutItsDeviceLeaves) {
  for (const bool in_build : {true, false}) {
    const auto thrown = run_ranks(2, [&](ProcessGroup& group) {
      ScriptedWorkload workload;
      MeasureHooks hooks;
      const bool loses = group.group_rank() == 1;
      hooks.has_lost_device = [loses] { return loses; };
      const auto lose = [loses] {
        if (loses) throw DeviceError("an illegal address");
      };
      if (in_build) workload.on_build = lose;
      workload.on_step = [&](std::int64_t step) {
        if (step == 3) lose();
        return StepSample{.step_s = 0.25};
      };
      measure(workload, group, {}, hooks);
    });
    const auto failure = [](const std::exception_ptr& error) -> std::string {
      try {
        std::rethrow_exception(error);
      } catch (const StepFailure& failed) {
        return failed.what();
      } catch (const CollectiveError&) {
        return "";
      }
    };
    ASSERT_TRUE(thrown[0] && thrown[1]);
    EXPECT_EQ(failure(thrown[0]), "");
    EXPECT_EQ(failure(thrown[1]), "an illegal address");
  }
}

TEST(MeasureTest, AStopRidesOnTheNextAgreement) {
  std::vector<double> seen;
  const auto results = measure_on(3, [&](int rank, ScriptedWorkload&, MeasureHooks& hooks) {
    hooks.stepped = [&, rank](double step_s) {
      EXPECT_EQ(rank, 0);
      seen.push_back(step_s);
      return seen.size() == 4;
    };
  });
  for (const Measurement& result : results) {
    EXPECT_EQ(result.status, Status::raced_out);
    EXPECT_EQ(result.step_times_s.size(), 5U);
    EXPECT_THAT(result.reason, HasSubstr("5 steps"));
  }
  EXPECT_EQ(seen.size(), 5U);
}

// Else the leader would be late for the step, and its peers would count that as theirs.
TEST(MeasureTest, AStepIsReportedBeforeTheNextAgreementNotBeforeTheNextStep) {
  std::string events;
  measure_on(1, [&](int, ScriptedWorkload& workload, MeasureHooks& hooks) {
    workload.on_step = [&](std::int64_t) {
      events += 's';
      return StepSample{1, 0.25};
    };
    hooks.stepped = [&](double) {
      events += 'r';
      return false;
    };
  });
  EXPECT_EQ(events, "ssrsrsrsrsrsrsrr");
}

TEST(MeasureTest, AStopTooLateChangesNothing) {
  int steps = 0;
  const auto results = measure_on(1, [&](int, ScriptedWorkload&, MeasureHooks& hooks) {
    hooks.stepped = [&](double) { return ++steps >= 7; };
  });
  EXPECT_EQ(results[0].status, Status::ok);
  EXPECT_EQ(results[0].step_times_s.size(), 8U);
}

TEST(MeasureTest, MemoryIsTheFullestRanks) {
  const auto results = measure_on(3, [](int rank, ScriptedWorkload& workload, MeasureHooks&) {
    const bool fullest = rank == 1;
    workload.peak = {
        fullest ? 300 : 200, {{"a", fullest ? 100 : 150}, {"b", 50}}, 1000 * (3 - rank), 10 * rank};
  });
  for (const Measurement& result : results) {
    EXPECT_EQ(result.peak_memory.total_bytes, 300);
    EXPECT_EQ(result.peak_memory.category_bytes.at("a"), 100);
    EXPECT_EQ(result.peak_memory.process_bytes, 3000);
    EXPECT_EQ(result.peak_memory.host_bytes, 10);
  }
}

TEST(MeasureTest, GpusAreLookedAtWhileStepsAreTimed) {
  const auto results = measure_on(3, [](int rank, ScriptedWorkload& workload, MeasureHooks& hooks) {
    workload.peak.gpu_bytes = 100 * (rank + 1);
    int looks = 0;
    hooks.sample_gpu = [rank, looks]() mutable -> std::optional<GpuState> {
      if (rank == 2) return std::nullopt;  // its library does not tell
      ++looks;
      // Rank 1 is the slower one, and hot when timing ends.
      GpuState state;
      state.sm_clock_mhz = 1900.0 - 300 * rank - 10 * looks;
      state.max_sm_clock_mhz = 1980;
      state.power_w = 500.0 + rank;
      state.temperature_c = 60.0 + looks;
      state.throttle_reasons = rank == 1 && looks == 2 ? 0x20 : 0;
      return state;
    };
  });
  for (const Measurement& result : results) {
    EXPECT_EQ(result.peak_memory.gpu_bytes, 300);
    ASSERT_TRUE(result.gpu);
    EXPECT_EQ(result.gpu->sm_clock_mhz, 1580);
    EXPECT_EQ(result.gpu->max_sm_clock_mhz, 1980);
    EXPECT_EQ(result.gpu->power_w, 501);
    EXPECT_EQ(result.gpu->temperature_c, 62);
    EXPECT_EQ(result.gpu->throttled_by, "heat");
  }
}

TEST(MeasureTest, WhereNoGpuTellsNothingIsSaid) {
  const auto results = measure_on(2, [](int rank, ScriptedWorkload&, MeasureHooks& hooks) {
    hooks.sample_gpu = [] { return std::optional<GpuState>(); };
    EXPECT_LT(rank, 2);
  });
  for (const Measurement& result : results) EXPECT_FALSE(result.gpu);
}

// One rank of each of two nodes counts; warm-up does not.
TEST(MeasureTest, EnergyIsThatOfAllNodesAfterWarmUp) {
  std::array<int, 4> steps{};
  const auto results = measure_on(4, [&](int rank, ScriptedWorkload& workload,
                                         MeasureHooks& hooks) {
    workload.on_step = [&steps, rank](std::int64_t) {
      ++steps[static_cast<std::size_t>(rank)];
      return StepSample{1, 0.25};
    };
    if (rank % 2 == 0)
      hooks.joules = [&steps, rank] { return 100.0 + 2.0 * steps[static_cast<std::size_t>(rank)]; };
  });
  for (const Measurement& result : results) {
    EXPECT_EQ(result.step_times_s.size(), 8U);
    EXPECT_EQ(result.energy_j, 20.0);
    EXPECT_EQ(joules_per_sample(result, 8), 0.5);
  }
}

TEST(MeasureTest, WhereANodeDoesNotCountThereIsNoEnergy) {
  const auto results = measure_on(2, [](int rank, ScriptedWorkload&, MeasureHooks& hooks) {
    hooks.joules = [rank, joules = 0.0]() mutable {
      return rank == 0 ? std::optional(joules += 1) : std::nullopt;
    };
  });
  for (const Measurement& result : results) EXPECT_FALSE(result.energy_j);
  EXPECT_FALSE(measure_on(1, [](int, ScriptedWorkload&, MeasureHooks&) {})[0].energy_j);
}

TEST(MeasureTest, ReadyIsCalledOnEveryRankBeforeTheFirstStep) {
  std::atomic<int> readies = 0;
  measure_on(3, [&](int, ScriptedWorkload& workload, MeasureHooks& hooks) {
    hooks.ready = [&] { ++readies; };
    workload.on_step = [&](std::int64_t) {
      EXPECT_GE(readies, 1);
      return StepSample{1, 0.25};
    };
  });
  EXPECT_EQ(readies, 3);
}

// The incumbent comes while it runs, to the leader alone; nobody asks between two looks.
TEST(MeasureTest, ARaceThatTheLeaderHearsOfLateEndsOnEveryRank) {
  int asked = 0;
  const auto results =
      measure_on(3, [&](int rank, ScriptedWorkload& workload, MeasureHooks& hooks) {
        workload.on_step = [](std::int64_t step) {
          return StepSample{1, step % 2 == 0 ? 0.05 : 0.075};
        };
        if (rank > 0) return;
        hooks.incumbent = [&] {
          return ++asked < 3 ? IncumbentEstimate{} : IncumbentEstimate{0.01, 0.01, 0.01, 4};
        };
      });
  EXPECT_EQ(asked, 3);
  for (const Measurement& result : results) {
    EXPECT_EQ(result.status, Status::raced_out);
    EXPECT_EQ(result.step_times_s.size(), 3U + default_policy().racing.looks[2]);
    EXPECT_EQ(result.reason, "stopped after 10 steps: clearly slower than the best so far");
  }
}

TEST(MeasureTest, AChallengerOfLongStepsEndsAfterTwoOfThemOnEveryRank) {
  for (const bool is_raced_early : {false, true}) {
    const auto results =
        measure_on(3, [&](int rank, ScriptedWorkload& workload, MeasureHooks& hooks) {
          workload.is_raced_early = is_raced_early;
          workload.talks = true;
          workload.on_step = [](std::int64_t) { return StepSample{1, 0.014}; };
          if (rank == 0) hooks.incumbent = [] { return IncumbentEstimate{0.01, 0.01, 0.01, 4}; };
        });
    for (const Measurement& result : results) {
      EXPECT_EQ(result.status, Status::raced_out);
      EXPECT_EQ(timed_steps_s(result).size(), is_raced_early ? 2U : 5U);
    }
  }
}

TEST(MeasureTest, AnAbortWhileWaitingForGoLeaves) {
  const auto thrown = run_ranks(1, [](ProcessGroup& group) {
    ScriptedWorkload workload;
    MeasureHooks hooks;
    hooks.ready = [] { throw CollectiveError(CollectiveError::Cause::aborted, "aborted"); };
    measure(workload, group, {}, hooks);
  });
  EXPECT_THROW(std::rethrow_exception(thrown[0]), CollectiveError);
}

}  // namespace
}  // namespace dstune
