#include "dstune/search/planner.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/plan/memory.hpp"
#include "memory_predictor.hpp"
#include "search_fixture.hpp"

namespace dstune {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;

class PlannerTest : public SearchTest {};

std::vector<std::string> names(const PlannedSpace& space, PlanStatus status) {
  std::vector<std::string> found;
  for (const auto& [planned, chain, is_below] : space.members) {
    if (planned.status == status) found.push_back(planned.experiment.name);
  }
  return found;
}

PlannerOptions roomy() {
  PlannerOptions options;
  options.host_memory_bytes = options.device_memory_bytes = plenty_bytes;
  return options;
}

TEST_F(PlannerTest, PredictsWhatThePlanSays) {
  const auto read = job(R"("zero_optimization": {"stage": [0, 3]},
                           "train_micro_batch_size_per_gpu": [1, 4])",
                        R"("resources": {"num_gpus": 2})");
  const auto space = plan(read);
  EXPECT_EQ(space.total, 4U);
  EXPECT_EQ(space.planned, 4U);
  for (const auto& [planned, chain, is_below] : space.members) {
    const auto& experiment = planned.experiment;
    const auto expected = build_step_plan(read.model, experiment.config, 2, 0, workspaces_).memory;
    EXPECT_EQ(planned.predicted.peak_memory_bytes, expected.arena_bytes);
    EXPECT_EQ(planned.predicted.target_memory_bytes,
              target_memory(read.model, experiment.config, 2, read.target).total_bytes);
    std::int64_t sum = 0;
    for (const auto& [name, bytes] : planned.predicted.categories) sum += bytes;
    EXPECT_EQ(sum, expected.arena_bytes);
    EXPECT_EQ(MemoryPredictor(read, workspaces_).predict(experiment).peak_memory_bytes,
              expected.arena_bytes);
    EXPECT_FALSE(chain);
  }
}

/// The plan of one member for GPUs elsewhere, of so much memory.
PlannedExperiment planned_for_gpus(const JobSpec& read, const WorkspaceSizes& workspaces,
                                   double device_bytes, std::optional<std::int64_t> host_bytes) {
  PlannerOptions options;
  options.forecasts.judges_memory_here = false;
  options.device_memory_bytes = static_cast<std::int64_t>(device_bytes);
  options.host_memory_bytes = host_bytes;
  return plan_space(read, SearchSpace(read), workspaces, options).members.copy_of(0).planned;
}

TEST_F(PlannerTest, AGpusVerdictHasTheErrorOfThePlanAroundIt) {
  auto read = job(R"("zero_optimization": {"stage": 1})", R"("resources": {"num_gpus": 2})");
  read.target.on_gpu = true;
  const auto on = [&](double device_bytes) {
    return planned_for_gpus(read, workspaces_, device_bytes, std::nullopt);
  };
  const auto needed = static_cast<double>(on(1e15).predicted.target_memory_bytes);
  EXPECT_EQ(on(1e15).predicted.peak_memory_bytes, 0) << "nothing of it runs here";
  using enum MemoryVerdict;
  const std::vector<std::pair<double, MemoryVerdict>> cases = {
      {0.96, fits}, {0.98, edge}, {1.01, edge}, {1.02, does_not_fit}};
  for (const auto& [share, verdict] : cases) {
    const PlannedExperiment planned = on(needed / share);
    EXPECT_EQ(planned.predicted.verdict, verdict) << share;
    EXPECT_EQ(planned.status == PlanStatus::planned, verdict != does_not_fit) << share;
    EXPECT_EQ(planned.predicted.because.empty(), verdict != does_not_fit) << share;
  }
}

TEST_F(PlannerTest, AHostNobodyKnowsGivesNoVerdict) {
  auto read = job(R"("zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}})",
                  R"("resources": {"num_gpus": 2})");
  read.target.on_gpu = true;
  const auto with_host = [&](std::optional<std::int64_t> bytes) {
    return planned_for_gpus(read, workspaces_, 1e15, bytes).predicted;
  };
  const auto needed = static_cast<double>(with_host(std::nullopt).target_host_memory_bytes);
  const auto at = [&](double share) {
    return with_host(static_cast<std::int64_t>(needed / share)).verdict;
  };
  EXPECT_GT(needed, 0);
  EXPECT_EQ(with_host(std::nullopt).verdict, MemoryVerdict::fits);
  EXPECT_EQ(at(0.75), MemoryVerdict::fits);
  EXPECT_EQ(at(0.8), MemoryVerdict::edge);
  EXPECT_EQ(at(0.96), MemoryVerdict::does_not_fit);
  EXPECT_THAT(with_host(static_cast<std::int64_t>(needed)).because,
              testing::HasSubstr("of a rank's host"));
}

TEST_F(PlannerTest, WhatDoesNotFitIsInfeasibleWithTheNumbers) {
  const auto read = job(R"("zero_optimization": {"stage": 0},
                           "train_micro_batch_size_per_gpu": [1, 64])",
                        R"("target": "self")");
  const auto roomy = plan(read);
  const auto small = roomy.members[0].planned.predicted.peak_memory_bytes;
  ASSERT_LT(small, roomy.members[1].planned.predicted.peak_memory_bytes);
  const auto tight = plan(read, small);
  EXPECT_EQ(tight.planned, 1U);
  EXPECT_EQ(tight.infeasible, 1U);
  EXPECT_EQ(tight.members[0].planned.status, PlanStatus::planned);
  EXPECT_EQ(tight.members[1].planned.status, PlanStatus::infeasible);
  // Our own step is the training.
  EXPECT_EQ(tight.members[0].planned.predicted.verdict, MemoryVerdict::fits);
  EXPECT_EQ(tight.members[1].planned.predicted.verdict, MemoryVerdict::does_not_fit);
  EXPECT_THAT(
      tight.members[1].planned.reason,
      AllOf(StartsWith("needs "), HasSubstr("but the device has "), HasSubstr("activations ")));
}

TEST_F(PlannerTest, WhatIsOffloadedNeedsTheHost) {
  const auto read = job(R"("zero_optimization": {"stage": 2,
                               "offload_optimizer": [null, {"device": "cpu"}]},
                           "train_micro_batch_size_per_gpu": [1])",
                        R"("target": "self")");
  const auto roomy = plan(read);
  ASSERT_EQ(roomy.planned, 2U);
  const auto& kept = roomy.members[0].planned.predicted;
  const auto& offloaded = roomy.members[1].planned.predicted;
  EXPECT_EQ(kept.host_memory_bytes, 0);
  EXPECT_GT(offloaded.host_memory_bytes, 0);
  const auto on_device = offloaded.peak_memory_bytes - offloaded.host_memory_bytes;
  EXPECT_LT(on_device, kept.peak_memory_bytes);

  // Exactly what it needs of both; then a byte too little of one.
  EXPECT_EQ(plan(read, on_device, offloaded.host_memory_bytes).members[1].planned.status,
            PlanStatus::planned);
  const auto tight = plan(read, plenty_bytes, offloaded.host_memory_bytes - 1);
  EXPECT_EQ(tight.members[0].planned.status, PlanStatus::planned);
  EXPECT_EQ(tight.members[1].planned.status, PlanStatus::infeasible);
  EXPECT_THAT(tight.members[1].planned.reason,
              AllOf(StartsWith("needs "), HasSubstr(" here (optimizer "),
                    HasSubstr("), but the host has ")));
}

TEST_F(PlannerTest, WhatDoesNotFitTheTargetIsInfeasibleToo) {
  const auto read = job(R"("zero_optimization": {"stage": 0},
                           "train_micro_batch_size_per_gpu": [4])",
                        R"("target": {"attention": "eager"})");
  const auto roomy = plan(read);
  const auto& predicted = roomy.members[0].planned.predicted;
  ASSERT_GT(predicted.target_memory_bytes, predicted.peak_memory_bytes);
  const auto tight = plan(read, predicted.peak_memory_bytes);
  EXPECT_EQ(tight.infeasible, 1U);
  EXPECT_THAT(tight.members[0].planned.reason, HasSubstr(" in your training"));
}

TEST_F(PlannerTest, WhatDoesNotFitTheTargetsHostIsInfeasibleToo) {
  const auto read = job(R"("zero_optimization": {"stage": 2,
                               "offload_optimizer": {"device": "cpu"}},
                           "train_micro_batch_size_per_gpu": [1])");
  ASSERT_EQ(plan(read).planned, 1U);
  const auto tight = plan(read, plenty_bytes, 1);
  EXPECT_EQ(tight.infeasible, 1U);
  EXPECT_THAT(tight.members[0].planned.reason,
              AllOf(HasSubstr(" in your training"), HasSubstr(", but the host has ")));
}

TEST_F(PlannerTest, WhatDoesNotFitTheTargetsDiskIsInfeasibleToo) {
  // Shards that stay in memory are in the target's files all the same, and not in ours.
  auto read = job(R"("zero_optimization": {"stage": 3, "offload_param":
                         {"device": "nvme", "nvme_path": "/nvme", "buffer_size": 40000000}},
                     "train_micro_batch_size_per_gpu": [1])");
  read.model = preset("gpt2");
  const SearchSpace space(read);
  PlannerOptions options = roomy();
  std::int64_t free_bytes = plenty_bytes;
  options.free_disk_bytes = [&](const std::string&) { return free_bytes; };
  EXPECT_EQ(plan_space(read, space, workspaces_, options).planned, 1U);
  free_bytes = 1 << 25;
  const auto tight = plan_space(read, space, workspaces_, options);
  ASSERT_EQ(tight.infeasible, 1U);
  EXPECT_THAT(tight.members[0].planned.reason,
              HasSubstr(" for the ranks of a host in your training, but the disk of /nvme has "));
}

TEST_F(PlannerTest, TheUsersOwnRunsMoveTheTargetsMemory) {
  const auto read = job(R"("zero_optimization": {"stage": 0})");
  const SearchSpace space(read);
  PlannerOptions options = roomy();
  const auto target_bytes = [&] {
    return plan_space(read, space, workspaces_, options)
        .members[0]
        .planned.predicted.target_memory_bytes;
  };
  const std::int64_t planned = target_bytes();
  options.target_offset_bytes = 1000;
  EXPECT_EQ(target_bytes(), planned + 1000);
  options.device_memory_bytes = planned + 999;
  const auto tight = plan_space(read, space, workspaces_, options);
  EXPECT_EQ(tight.members[0].planned.status, PlanStatus::infeasible);
  EXPECT_THAT(tight.members[0].planned.reason, HasSubstr(" in your training"));
  // A GPU's context is in the target's memory, and not in what is free beside ours.
  options.context_bytes = 1;
  EXPECT_THAT(plan_space(read, space, workspaces_, options).members[0].planned.reason,
              testing::Not(HasSubstr(" in your training")));
}

TEST_F(PlannerTest, NothingIsInfeasibleWhereNothingIsTrained) {
  const auto read =
      job(R"("train_micro_batch_size_per_gpu": [1])", R"("workload": {"type": "synthetic"})");
  const auto space = plan(read, 1, plenty_bytes, {.judges_here = false, .judges_target = false});
  EXPECT_EQ(space.planned, 4U);
  EXPECT_GT(space.members[0].planned.predicted.peak_memory_bytes, 1);
}

TEST_F(PlannerTest, TheCapPrunesWhatLiesPastIt) {
  const auto read = job(R"("autotuning": {"tuner_type": "gridsearch", "tuner_num_trials": 2},
                           "zero_optimization": {"stage": 1},
                           "train_micro_batch_size_per_gpu": [1, 1, 2, 3])");
  const auto space = plan(read);
  EXPECT_THAT(names(space, PlanStatus::planned),
              testing::ElementsAre("z1_gas1_tmbspg1", "z1_gas1_tmbspg2"));
  EXPECT_EQ(space.pruned, 2U);
  EXPECT_EQ(space.prune_counts, (PruneCounts{{PruneKind::twin, 1}, {PruneKind::cap, 1}}));
  EXPECT_EQ(space.members[3].planned.prune_kind, PruneKind::cap);
  EXPECT_EQ(space.members[3].planned.reason, "past the limit of 2 experiments (tuner_num_trials)");
}

TEST_F(PlannerTest, TunersThatChooseByThemselvesCountWhatTheyRunInAJob) {
  overrides_.num_trials = 1;
  for (const char* type : {"race", "model_based"}) {
    overrides_.tuner_type = type;
    const auto read = job(R"("train_micro_batch_size_per_gpu": [1, 2, 3])");
    PlannerOptions options = roomy();
    EXPECT_EQ(plan_space(read, SearchSpace(read), workspaces_, options).planned, 1U)
        << type << " without measurements";
    options.lists_pruned = false;
    EXPECT_EQ(plan_space(read, SearchSpace(read), workspaces_, options).planned, 12U) << type;
  }
}

TEST_F(PlannerTest, TheUsersOwnHasTheFirstCandidatesThatFit) {
  overrides_.num_trials = 1;
  overrides_.tuner_type = "random";
  const auto own_name = [](const PlannedSpace& space) {
    return space.baseline ? space.experiment(*space.baseline).name : "none";
  };
  const std::string sizes = R"("train_micro_batch_size_per_gpu": [64, 1, 2])";
  for (const int seed : {0, 1, 2}) {
    overrides_.seed = seed;
    const auto read = job(R"("zero_optimization": {"stage": 0}, )" + sizes);
    const auto roomy = plan(read);
    EXPECT_EQ(own_name(roomy), "z0_gas1_tmbspg64");
    const auto own = roomy.members[*roomy.baseline].planned.predicted;
    EXPECT_EQ(own_name(plan(read, own.peak_memory_bytes - 1)), "z0_gas1_tmbspg1");
    EXPECT_EQ(own_name(plan(read, 1)), "none");
  }
}

TEST_F(PlannerTest, WhereNobodyPlansTheBaselineIsTheSmallestSize) {
  const auto planned = [&](const std::string& size) {
    JobSpec read =
        job(R"("zero_optimization": {"stage": 0}, "train_micro_batch_size_per_gpu": )" + size);
    read.instruments.back().kind = WorkloadKind::plugin;
    return plan(read, 1 << 20);
  };
  const auto own_size = [](const PlannedSpace& space) {
    return space.micro_batch(space.baseline.value());
  };
  const PlannedSpace searched = planned(R"("auto")");
  EXPECT_TRUE(searched.is_unplanned);
  EXPECT_EQ(searched.device_memory_bytes, 1 << 20);
  EXPECT_EQ(own_size(searched), 1);
  EXPECT_TRUE(searched.baseline_grows);
  const PlannedSpace from_four = planned("4");
  EXPECT_EQ(own_size(from_four), 4);
  EXPECT_FALSE(from_four.baseline_grows) << "the user has written it";
  EXPECT_FALSE(planned("[1, 2]").baseline_grows);
  EXPECT_FALSE(plan(job(R"("zero_optimization": {"stage": 0})")).is_unplanned);
}

TEST_F(PlannerTest, ASearchedSizeBeginsAtTheUsersOwnOrTheSmallest) {
  const auto own_size = [&](const std::string& size, const std::string& command = "",
                            const std::string& mappings = "{}") {
    const std::string dstune = command.empty() ? "" : "\"training_command\": \"" + command + "\"";
    const PlannedSpace space =
        plan(job(R"("zero_optimization": {"stage": 0}, "autotuning": {"arg_mappings": )" +
                     mappings + R"(}, "train_micro_batch_size_per_gpu": )" + size,
                 dstune));
    EXPECT_FALSE(space.baseline_grows);
    return space.micro_batch(space.baseline.value());
  };
  EXPECT_EQ(own_size(R"("auto")"), 1);
  EXPECT_EQ(own_size("4", "train.py --per_device_train_batch_size 8"), 4);
  EXPECT_EQ(own_size(R"("auto")", "train.py --per_device_train_batch_size 8 --lr 0.1"), 8);
  EXPECT_EQ(own_size(R"("auto")", "train.py --per_device_train_batch_size=8"), 8);
  EXPECT_EQ(own_size(R"("auto")", "train.py --per_device_train_batch_size auto"), 1);
  EXPECT_EQ(own_size(R"("auto")", "train.py --per_device_train_batch_size"), 1);
  const std::string mapped = R"({"train_micro_batch_size_per_gpu": "--bs"})";
  EXPECT_EQ(own_size(R"("auto")", "train.py --bs 6 --bs_test 9", mapped), 6);
  // It is among those that are searched, whatever it is, but for limits of the search.
  EXPECT_EQ(own_size(R"("auto")", "train.py --bs 33", mapped), 33);
  EXPECT_EQ(own_size(R"("auto")", "train.py --bs 3000", mapped), 1024);
}

TEST_F(PlannerTest, TheBaselineAndTodaysBatchHaveTheSameRanks) {
  const auto of_command = [&](const std::string& launcher) {
    const JobSpec read = job(R"("zero_optimization": {"stage": 0})",
                             R"("training_command": ")" + launcher +
                                 R"(train.py --per_device_train_batch_size 1", )"
                                 R"("resources": {"num_gpus": [1, 4, 2]})");
    const PlannedSpace space = plan(read);
    return std::pair(space.experiment(space.baseline.value()).shape.size(),
                     read.todays_batch.value().ranks);
  };
  EXPECT_EQ(of_command(""), std::pair(1, 1)) << "what comes first is what the user has today";
  EXPECT_EQ(of_command("torchrun --nproc_per_node 2 "), std::pair(2, 2));
  EXPECT_EQ(of_command("torchrun --nproc_per_node 8 "), std::pair(1, 8)) << "nobody has so many";
}

TEST_F(PlannerTest, RandomDrawsAnOrderFromTheSeed) {
  const auto order = [&](std::int64_t seed) {
    overrides_.seed = seed;
    overrides_.tuner_type = "random";
    return names(plan(job(R"("train_micro_batch_size_per_gpu": [1, 2, 3, 4, 5])")),
                 PlanStatus::planned);
  };
  const auto first = order(1);
  EXPECT_EQ(order(1), first);
  EXPECT_NE(order(2), first);
  const auto other = order(2);
  EXPECT_EQ(std::set<std::string>(first.begin(), first.end()),
            std::set<std::string>(other.begin(), other.end()));
  EXPECT_EQ(first.size(), 20U);
}

TEST_F(PlannerTest, RandomKeepsTheOrderWithinAChain) {
  overrides_.tuner_type = "random";
  overrides_.seed = 5;
  const auto space = plan(job(R"("autotuning": {"max_train_micro_batch_size_per_gpu": 32})"));
  std::map<std::uint64_t, std::int64_t> largest;
  int switches = 0;
  for (std::size_t member = 0; member < space.members.size(); ++member) {
    const auto& [planned, chain, is_below] = space.members[member];
    ASSERT_TRUE(chain);
    EXPECT_GT(planned.experiment.config.micro_batch, largest[*chain]);
    largest[*chain] = planned.experiment.config.micro_batch;
    if (member > 0 && space.members[member - 1].micro_batch_chain != chain) ++switches;
  }
  EXPECT_EQ(largest.size(), 4U);
  EXPECT_GT(switches, 3) << "chains are mixed";
}

TEST_F(PlannerTest, LargeSpacesAreListedInPartAndCountedWhole) {
  const auto read = job(R"("train_batch_size": 12, "zero_optimization": {"stage": [1, 2]},
      "train_micro_batch_size_per_gpu": [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12],
      "gradient_accumulation_steps": [1, 2, 3, 4, 6, 12])");
  PlannerOptions options;
  options.device_memory_bytes = plenty_bytes;
  options.max_members = 100;
  options.listed = 10;
  const auto space = plan_space(read, SearchSpace(read), workspaces_, options);
  EXPECT_EQ(space.total, 144U);
  EXPECT_EQ(names(space, PlanStatus::planned).size(), 10U) << "five divisions of 12 at two stages";
  EXPECT_EQ(space.planned, 12U) << "six divisions of 12 at two stages";
  EXPECT_EQ(space.pruned, 132U);
  ASSERT_EQ(space.warnings.size(), 2U);
  EXPECT_THAT(space.warnings[0], HasSubstr("the first candidate of every list can not run"));
  EXPECT_THAT(space.warnings[1], HasSubstr("10 of 144 members are judged one by one"));

  auto capped = read;
  capped.tuning.num_trials = 1;
  const auto few = plan_space(capped, SearchSpace(capped), workspaces_, options);
  EXPECT_EQ(few.planned, 1U);
  EXPECT_EQ(few.pruned, 143U);
}

TEST_F(PlannerTest, ALargeSpaceIsShownByShorterListsThatCoverWhatDecides) {
  const auto read = job(R"("zero_optimization": {"reduce_bucket_size": [1e6, 2e6, 3e6, 4e6, 5e6],
                             "overlap_comm": [true, false], "stage": [1, 2, 3]},
      "train_micro_batch_size_per_gpu": [1, 2, 3, 4], "gradient_accumulation_steps": [1, 2, 4])",
                        R"("activation_recompute": ["none", "block"])");
  PlannerOptions options = roomy();
  options.max_members = 100;
  const auto values = [&](std::uint64_t listed, auto&& value_of) {
    options.listed = listed;
    std::set<std::int64_t> found;
    for (const PlannedMember& member :
         plan_space(read, SearchSpace(read), workspaces_, options).members)
      found.insert(value_of(member.planned.experiment.config));
    return found;
  };
  const auto stage = [](const TrainingConfig& config) { return config.zero_stage; };
  const auto micro_batch = [](const TrainingConfig& config) { return config.micro_batch; };
  const auto steps = [](const TrainingConfig& config) { return config.accumulation_steps; };
  const auto bucket = [](const TrainingConfig& config) { return config.reduce_bucket_size; };
  const auto recompute = [](const TrainingConfig& config) {
    return config.recompute == Recompute::none ? 0 : 1;
  };
  using Values = std::set<std::int64_t>;
  EXPECT_EQ(values(24, stage), (Values{1, 2, 3}));
  EXPECT_EQ(values(24, recompute), (Values{0, 1}));
  EXPECT_EQ(values(24, micro_batch), (Values{1, 2, 3, 4}));
  EXPECT_EQ(values(24, steps), (Values{1}));
  EXPECT_EQ(values(12, micro_batch), (Values{1, 4}));
  EXPECT_EQ(values(48, steps), (Values{1, 4}));
  EXPECT_EQ(values(48, bucket), (Values{1'000'000}));
  EXPECT_EQ(values(192, bucket), (Values{1'000'000, 5'000'000}));

  // A section that is offloaded or not counts among what decides.
  const auto offloading = job(R"("zero_optimization": {"stage": 2, "overlap_comm": [true, false],
                                   "offload_optimizer": [null, {"device": "cpu"}]},
      "train_micro_batch_size_per_gpu": [1, 2, 3, 4, 5, 6, 7, 8])");
  options.max_members = 10;
  options.listed = 16;
  int num_offloaded = 0;
  for (const PlannedMember& member :
       plan_space(offloading, SearchSpace(offloading), workspaces_, options).members)
    num_offloaded += is_optimizer_offloaded(member.planned.experiment.config) ? 1 : 0;
  EXPECT_EQ(num_offloaded, 8);
}

/// A clock on which each look at it costs a share of the time.
std::function<double()> clock_of(int looks) {
  return [looks, looked = 0]() mutable { return static_cast<double>(++looked) / looks; };
}

TEST_F(PlannerTest, EndsWithItsTimeAndSaysWhatItHas) {
  const auto read = job(R"("zero_optimization": {"stage": 0},
                           "train_micro_batch_size_per_gpu": [1, 2, 3, 4, 5, 6, 7, 8])",
                        R"("target": "self")");
  const SearchSpace space(read);
  PlannerOptions options = roomy();
  EXPECT_FALSE(plan_space(read, space, workspaces_, options).is_cut_short);
  options.used_time = clock_of(1000);
  EXPECT_FALSE(plan_space(read, space, workspaces_, options).is_cut_short);
  for (const bool is_large : {false, true}) {
    if (is_large) options.max_members = 4;
    // Half of ten looks selects five members; four more looks plan four of them.
    options.used_time = clock_of(10);
    const PlannedSpace cut = plan_space(read, space, workspaces_, options);
    EXPECT_TRUE(cut.is_cut_short);
    EXPECT_LT(cut.members.size(), 5U);
    EXPECT_EQ(cut.total, cut.planned + cut.infeasible + cut.pruned);
    ASSERT_EQ(cut.warnings.size(), 1U);
    EXPECT_THAT(cut.warnings.front(), HasSubstr("of 8 members were looked at"));
  }
  // One that is to be run has no use for a part: all of the time is for all of it.
  options.lists_pruned = false;
  options.used_time = clock_of(10);
  EXPECT_TRUE(plan_space(read, space, workspaces_, options).is_cut_short);
}

TEST_F(PlannerTest, AMemberIsTheSamePackedAndOpen) {
  const auto read = job(R"("zero_optimization": {"stage": [0, 1, 3], "overlap_comm": [true, false],
                             "offload_optimizer": [null, {"device": "cpu"}]},
                           "train_micro_batch_size_per_gpu": [1, 64], "bf16": {"enabled": true})",
                        R"("resources": {"num_gpus": [1, 2]})");
  PlannerOptions options = roomy();
  options.device_memory_bytes = std::int64_t{64} << 20;
  const PlannedSpace space = plan_space(read, SearchSpace(read), workspaces_, options);
  const PlannedSpace open = space;
  SinglePlanner single(read, workspaces_, options);
  std::set<PlanStatus> statuses;
  std::size_t index = 0;
  for (const PlannedMember& member : space.members) {
    const PlannedExperiment& planned = member.planned;
    const PlannedMember& kept = open.members[index];
    EXPECT_EQ(json::write(kept.planned.predicted), json::write(planned.predicted));
    EXPECT_EQ(kept.planned.reason, planned.reason);
    EXPECT_EQ(space.status(index), planned.status);
    EXPECT_EQ(space.reason(index), planned.reason);
    EXPECT_EQ(space.shape(index), planned.experiment.shape);
    EXPECT_EQ(space.micro_batch(index), planned.experiment.config.micro_batch);
    statuses.insert(planned.status);
    ++index;
    if (planned.status == PlanStatus::pruned) continue;
    const PlannedExperiment again = single.plan(planned.experiment);
    EXPECT_EQ(again.status, planned.status);
    EXPECT_EQ(again.reason, planned.reason);
    EXPECT_EQ(json::write(again.predicted), json::write(planned.predicted));
    EXPECT_EQ(again.predicted.categories, planned.predicted.categories);
    EXPECT_EQ(again.predicted.host_categories, planned.predicted.host_categories);
    EXPECT_EQ(again.predicted.target_categories, planned.predicted.target_categories);
    ASSERT_EQ(again.predicted.ranks.size(), planned.predicted.ranks.size());
    for (std::size_t place = 0; place < again.predicted.ranks.size(); ++place)
      EXPECT_EQ(again.predicted.ranks[place].categories, planned.predicted.ranks[place].categories);
  }
  EXPECT_EQ(statuses.size(), 3U);
  EXPECT_EQ(index, space.members.size());
  EXPECT_EQ(space.members.num_open(), 0U);
}

TEST_F(PlannerTest, WhatIsDecidedLaterStays) {
  const auto read = job(R"("zero_optimization": {"stage": [0, 1]},
                           "train_micro_batch_size_per_gpu": [1, 2])",
                        R"("target": "self")");
  PlannedSpace space = plan(read);
  space.decide(1, PlanStatus::infeasible, PruneKind::not_chosen, "it is too large");
  for (PlannedMember& member : space.members)
    if (member.planned.experiment.config.micro_batch == 1) member.planned.predicted.throughput = 8;
  EXPECT_EQ(space.members.num_open(), 0U);
  const PlannedMember first = space.members.copy_of(0);
  EXPECT_EQ(first.planned.predicted.throughput, 8.0);
  EXPECT_FALSE(first.planned.predicted.target_throughput);
  const PlannedMember second = space.members.copy_of(1);
  EXPECT_EQ(second.planned.status, PlanStatus::infeasible);
  EXPECT_EQ(second.planned.reason, "it is too large");
  EXPECT_FALSE(second.planned.predicted.throughput);
}

}  // namespace
}  // namespace dstune
