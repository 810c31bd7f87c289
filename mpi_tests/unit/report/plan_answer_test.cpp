#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dstune/base/text.hpp"
#include "dstune/report/dry_run.hpp"
#include "json_schema.hpp"
#include "plan/answer.hpp"
#include "toy_plan.hpp"

namespace dstune {
namespace {

using test::toy_plan;
using test::ToyModel;
using test::ToySpace;
using testing::HasSubstr;
using testing::Not;

constexpr std::size_t max_lines = 15;

std::size_t num_lines(const std::string& text) {
  return static_cast<std::size_t>(std::ranges::count(text, '\n'));
}

std::string name_at(const DryRun& plan, std::optional<std::size_t> member) {
  return member ? plan.experiments[*member].experiment.name : "none";
}

/// Adds nothing to what members say.
DryRun without_what_if(DryRun plan) {
  plan.what_if = nullptr;
  return plan;
}

TEST(PlanAnswerTextTest, SaysWhatFitsWithWhatAndHowFast) {
  const ToyModel model;
  EXPECT_EQ(
      dry_run_text(toy_plan(model)),
      "LLaMA-7B-like: 6.74 billion parameters, 32 layers, sequence 1024.\n"
      "8 GPUs (1 node x 8): NVIDIA A100 PCIe 40GB with 40.0 GiB (--device a100-40gb); host memory "
      "not known: no verdict from it.\n"
      "Training: bf16, stage 3, accumulation 1, recompute none, batches of 8 to 512 samples; "
      "varied: micro-batch 1 to 64 (7 values).\n"
      "Planned for DeepSpeed 0.19.8 (by --deepspeed-version). Optimizer: AdamW of the config.\n"
      "\n"
      "The largest micro-batch that fits is 8 (z3_gas1_tmbspg8: 34.0 of 40.0 GiB, 5 to 7.8 "
      "samples/s); it is also the fastest that fits.\n"
      "The cheapest change that makes z3_gas1_tmbspg16 fit is micro-batch 8 with accumulation 2 "
      "(34.0 of 40.0 GiB, 5 to 7.8 samples/s); next, by predicted speed: recompute block.\n"
      "The smallest number of GPUs that fits is 1 (tried: 1, 2, 4, 8, with z3_gas1_tmbspg1).\n"
      "3 members do not fit: activations are the largest part (64.0 GiB); the smallest is "
      "z3_gas1_tmbspg16.\n"
      "Tuning takes about 0:30:00 on 8 GPUs: 4 GPU-hours.\n"
      "7 members: 4 planned, 3 infeasible, 0 pruned. A rank may use 40.0 GiB. --all shows each of "
      "them.\n");
}

TEST(PlanAnswerTextTest, TheTableEndsBehindTheSecondSizeThatDoesNotFit) {
  const ToyModel model;
  const std::string text = dry_run_text(toy_plan(model), {.all = true});
  EXPECT_THAT(text, HasSubstr("\n\n#  verdict       ranks    memory  nvidia-smi  built-in  "
                              "samples/s  name              reason\n"
                              "1  fits              8  6.00 GiB    7.00 GiB  3.00 GiB    3.6–5.6  "
                              "z3_gas1_tmbspg1\n"));
  EXPECT_THAT(text, HasSubstr("   does not fit      8   130 GiB     131 GiB  65.0 GiB    5.3–8.2  "
                              "z3_gas1_tmbspg32  activations are the largest part (128.0 GiB)\n"
                              "… 1 larger size than z3_gas1_tmbspg32 does not fit either\n\n"
                              "The largest micro-batch that fits is 8 "));
  EXPECT_THAT(text, Not(HasSubstr("z3_gas1_tmbspg64")));
  EXPECT_THAT(text, Not(HasSubstr("--all shows")));
  // Each configuration ends by itself; members of all stand in one order.
  const std::string several = dry_run_text(toy_plan(model, {.stages = {1, 3}}), {.all = true});
  for (const char* stage : {"z1", "z3"})
    EXPECT_THAT(several, HasSubstr(fmt::format("than {}_gas1_tmbspg32 does", stage)));
}

TEST(PlanAnswerTextTest, KeepsSizesBelowOneThatMayFit) {
  const ToyModel model;
  DryRun plan = toy_plan(model);
  plan.experiments.back().predicted.verdict = MemoryVerdict::edge;
  const std::string text = dry_run_text(plan, {.all = true});
  for (const PlannedExperiment& planned : plan.experiments)
    EXPECT_THAT(text, HasSubstr("  " + planned.experiment.name));
  EXPECT_THAT(text, Not(HasSubstr("larger size")));
}

TEST(PlanAnswerTextTest, TheTableHasOurStepWhereMembersRunHere) {
  const ToyModel model;
  DryRun plan = toy_plan(model);
  plan.runs_here = false;
  EXPECT_THAT(dry_run_text(plan, {.all = true}), Not(HasSubstr("  built-in")));
  EXPECT_THAT(dry_run_text(plan, {.verbose = true}), HasSubstr("  built-in"));
}

TEST(PlanAnswerTextTest, AMemberMayFitWhereItIsForAndNotRunHere) {
  const ToyModel model;
  DryRun plan = toy_plan(model);
  plan.experiments.front().status = PlanStatus::infeasible;
  plan.experiments.front().reason = "needs 9.00 GiB here, but the device has 8.00 GiB";
  EXPECT_THAT(dry_run_text(plan, {.all = true}), HasSubstr("fits, not here "));
}

TEST(PlanAnswerTextTest, HasFifteenLinesAtMost) {
  const ToyModel quick, slow{.has_speed = false}, small{.device_memory_bytes = 8 * test::toy_gib};
  const ToyModel none{.device_memory_bytes = 1 * test::toy_gib}, unknown{.device_memory_bytes = 0};
  std::vector<std::int64_t> sizes, few{3};
  for (std::int64_t size = 1; size <= 300; ++size) sizes.push_back(size);
  for (const ToyModel* model : {&quick, &slow, &small, &none, &unknown}) {
    for (const std::vector<std::int64_t>& micro_batches : {sizes, few}) {
      for (const std::size_t num_assumed : {0U, 1U, 40U}) {
        const std::vector<int> stages{0, 1, 2, 3};
        DryRun plan = toy_plan(*model, {stages, micro_batches, {1, 2, 3, 4, 5, 6}});
        plan.assumptions.assign(num_assumed, "something");
        plan.from_command.assign(num_assumed / 2, "the command says something");
        // Many other things are there at once.
        plan.head.network = "InfiniBand HDR";
        plan.no_speed = "no profile of the device is known";
        for (std::size_t place = 0; place + 3 < plan.experiments.size(); place += 5) {
          plan.experiments[place].status = PlanStatus::pruned;
          plan.experiments[place].reason = std::string(1 + place % 7, 'x');
          plan.experiments[place + 1].predicted.verdict = MemoryVerdict::unknown;
          plan.experiments[place + 2].predicted.because += std::string(1 + place % 5, 'y');
        }
        const std::string text = dry_run_text(plan);
        EXPECT_LE(num_lines(text), max_lines) << text;
        EXPECT_THAT(text, HasSubstr("members: "));
        if (num_assumed > 0) {
          EXPECT_THAT(text, HasSubstr("ssumed"));
        }
        if (num_assumed == 40) {
          EXPECT_THAT(text, HasSubstr(" more that are assumed: --all"));
          // A user looks for what the program read from the command.
          EXPECT_THAT(text, HasSubstr("the command says something"));
        }
        EXPECT_THAT(dry_run_text(plan, {.all = true}), Not(HasSubstr("--all")));
      }
    }
  }
}

TEST(PlanAnswerTextTest, KeepsToAWidthAndIsOneLineASentenceInAPipe) {
  const ToyModel model;
  const DryRun plan = toy_plan(model, {.stages = {1, 2, 3}});
  for (const std::size_t width : {40U, 80U, 100U}) {
    const std::string text = dry_run_text(plan, {.width = width});
    std::string joined = text;
    for (const std::string_view line : lines_of(text)) EXPECT_LE(line.size(), width) << line;
    std::ranges::replace(joined, '\n', ' ');
    EXPECT_THAT(joined,
                HasSubstr("The largest micro-batch that fits is 8 (z2_gas1_tmbspg8: 35.8 of "
                          "40.0 GiB"));
  }
}

TEST(PlanAnswerTextTest, FoldsReasonsThatDifferInNumbers) {
  const ToyModel model;
  DryRun plan = toy_plan(model, {.stages = {1, 3}});
  EXPECT_THAT(dry_run_text(plan),
              HasSubstr("6 members do not fit: activations are the largest part (64.0 GiB); the "
                        "smallest is z3_gas1_tmbspg16.\n"));
  plan.experiments.back().predicted.because = "all gathered parameters are the largest part";
  EXPECT_THAT(dry_run_text(plan), HasSubstr("\n5 members do not fit: activations are"));
  EXPECT_THAT(dry_run_text(plan), HasSubstr("\n1 member does not fit: all gathered parameters are "
                                            "the largest part.\n"));
  // The planner's own reasons, of what it does not give a verdict on.
  for (PlannedExperiment& planned : plan.experiments) {
    planned.predicted.verdict = MemoryVerdict::unknown;
    planned.predicted.because.clear();
    if (planned.status == PlanStatus::infeasible)
      planned.reason =
          fmt::format("needs {} here (parameters 1.00 GiB), but the device has 40.0 GiB",
                      format_bytes(planned.predicted.target_memory_bytes));
  }
  EXPECT_THAT(dry_run_text(plan),
              HasSubstr("6 members do not fit: needs 66.0 GiB here, but the device has "
                        "40.0 GiB; the smallest is z3_gas1_tmbspg16.\n"));
}

TEST(PlanAnswerTextTest, SaysWhyThereIsNoSpeed) {
  const ToyModel model{.has_speed = false};
  DryRun plan = toy_plan(model);
  plan.no_speed = "no profile of the device is known";
  const std::string text = dry_run_text(plan);
  EXPECT_THAT(text,
              HasSubstr("\nNo speed is predicted, so the time that tuning takes is not known: "
                        "no profile of the device is known.\n"));
  EXPECT_THAT(text, Not(HasSubstr("samples/s")));
  EXPECT_THAT(text, Not(HasSubstr("astest")));
  plan.experiments.front().predicted.throughput = 5;
  EXPECT_THAT(dry_run_text(plan), HasSubstr("The speed of some members is not predicted, so "));
}

TEST(PlanAnswerTextTest, SaysWhyThereIsNoSpeedWhereNothingFits) {
  const ToyModel model{.device_memory_bytes = test::toy_gib, .has_speed = false};
  DryRun plan = toy_plan(model);
  EXPECT_THAT(dry_run_text(plan), Not(HasSubstr("No speed")));
  plan.no_speed = "no profile of the device is known";
  EXPECT_THAT(dry_run_text(plan),
              HasSubstr("\nNo speed is predicted: no profile of the device is known.\n"));
}

TEST(PlanAnswerTextTest, NamesTheMachineAndItsSources) {
  const ToyModel model;
  DryRun plan = toy_plan(model);
  plan.head.machine_source = "--hostfile hosts";
  EXPECT_THAT(dry_run_text(plan), HasSubstr("\n8 GPUs (1 node x 8, --hostfile hosts): NVIDIA "));
  plan.head.device.clear();
  plan.head.device_memory_source = "dstune.device_memory";
  EXPECT_THAT(dry_run_text(plan), HasSubstr("hosts): 40.0 GiB each (dstune.device_memory); host "));
}

TEST(PlanAnswerTextTest, TheTableGivesTheLargestPartAndMoreWhereAsked) {
  const ToyModel model;
  DryRun plan = toy_plan(model, {.micro_batches = {64}});
  plan.experiments[0].reason = "needs 258 GiB of 40.0 GiB (activations 256 GiB, states 2 GiB)";
  const std::string text = dry_run_text(plan, {.all = true});
  EXPECT_THAT(text, HasSubstr("z3_gas1_tmbspg64  activations are the largest part (256.0 GiB)\n"));
  EXPECT_THAT(text, Not(HasSubstr("states 2 GiB")));
  EXPECT_THAT(dry_run_text(plan, {.verbose = true}),
              HasSubstr("activations 256 GiB, states 2 GiB"));
}

TEST(PlanAnswerTextTest, GivesNoVerdictWhereTheMemoryIsNotKnown) {
  const ToyModel model{.device_memory_bytes = 0};
  DryRun plan = toy_plan(model);
  plan.no_verdict = "the memory of a GPU is not known: write dstune.device_memory";
  const std::string text = dry_run_text(plan);
  EXPECT_THAT(text, HasSubstr("Whether 7 members fit is not known: the memory of a GPU is not "
                              "known: write dstune.device_memory.\n"));
  for (const char* no : {"largest", "cheapest", "smallest", "do not fit", "A rank may use"})
    EXPECT_THAT(text, Not(HasSubstr(no))) << text;
  EXPECT_THAT(text, HasSubstr("NVIDIA A100 PCIe 40GB, memory not known (--device a100-40gb); "));
}

TEST(PlanAnswerTextTest, WhatFollowsTheStageIsNotCalledVaried) {
  const ToyModel model;
  DryRun plan = toy_plan(model, {.stages = {1, 3}});
  for (PlannedExperiment& planned : plan.experiments) {
    TrainingConfig& config = planned.experiment.config;
    config.overlap_comm = config.zero_stage == 3;
  }
  EXPECT_THAT(dry_run_text(plan), HasSubstr("varied: stage 1, 3; micro-batch 1 to 64 (7 values); "
                                            "by stage: overlap_comm.\n"));
  // The user varies it.
  plan.experiments.front().experiment.config.overlap_comm ^= true;
  EXPECT_THAT(dry_run_text(plan), HasSubstr("; overlap_comm true, false.\n"));
  EXPECT_THAT(dry_run_text(plan), Not(HasSubstr("by stage")));
}

TEST(PlanAnswerTextTest, NamesWhatIsAtTheEdge) {
  const ToyModel model{.device_memory_bytes = 32 * test::toy_gib};
  const std::string text = dry_run_text(toy_plan(model));
  EXPECT_THAT(text, HasSubstr("The largest micro-batch that fits is 4 ("));
  EXPECT_THAT(text,
              HasSubstr("\nAt the edge, inside the error of the plan: z3_gas1_tmbspg8 (34.0 of "
                        "32.0 GiB, 5 to 7.8 samples/s).\n"));
  EXPECT_THAT(dry_run_text(toy_plan(model), {.all = true}), HasSubstr("  at the edge "));
  const ToyModel small{.device_memory_bytes = 6 * test::toy_gib};
  EXPECT_THAT(dry_run_text(toy_plan(small)),
              HasSubstr("\nNo member is sure to fit.\nAt the edge, inside the error of the plan: "
                        "z3_gas1_tmbspg1 (6.00 of 6.00 GiB, 3.6 to 5.6 samples/s).\n"));
}

TEST(PlanAnswerTextTest, HasTheMemoryOfHostsWhereSomethingIsThere) {
  const ToyModel model;
  DryRun plan = toy_plan(model);
  EXPECT_THAT(dry_run_text(plan, {.all = true}), Not(HasSubstr("host, a node")));
  for (PlannedExperiment& planned : plan.experiments) {
    planned.experiment.config.offload_optimizer = OffloadDevice::cpu;
    planned.predicted = model.predict(planned.experiment);
  }
  plan.head.host_memory_bytes = 1024 * test::toy_gib;
  plan.head.host_memory_source = "--host-memory";
  const std::string text = dry_run_text(plan, {.all = true});
  EXPECT_THAT(text, HasSubstr("host, a node"));
  EXPECT_THAT(text, HasSubstr("hosts of 1.00 TiB (--host-memory)"));
  EXPECT_THAT(text, HasSubstr("12.0 GiB of 1.00 TiB on each host"));
  EXPECT_EQ(dry_run_json(plan)["experiments"][0]["predicted"]["target_host_memory_bytes_per_node"],
            12 * test::toy_gib);
}

TEST(PlanAnswerTest, ChainsMembersThatDifferInTheMicroBatchAlone) {
  const ToyModel model;
  const DryRun plan = toy_plan(model, {.stages = {1, 3}, .accumulations = {1, 2}});
  const PlanAnswer answer = answer_of(plan);
  ASSERT_EQ(answer.chains.size(), 4U);
  EXPECT_EQ(name_at(plan, answer.chains[0].largest), "z3_gas1_tmbspg8");
  EXPECT_EQ(name_at(plan, answer.chains[2].largest), "z1_gas1_tmbspg4");
  EXPECT_EQ(answer.chains[0].members.size(), 7U);
  EXPECT_EQ(answer.chains[0].hopeless.size(), 1U);
  EXPECT_EQ(name_at(plan, answer.largest), "z3_gas1_tmbspg8");
  EXPECT_EQ(answer.edge.size(), 2U);
}

TEST(PlanAnswerTest, OneGlobalBatchIsOneChain) {
  const ToyModel model;
  DryRun plan = toy_plan(model, {.micro_batches = {1, 2, 4, 8, 16}});
  for (PlannedExperiment& planned : plan.experiments) {
    TrainingConfig& config = planned.experiment.config;
    config.accumulation_steps = 16 / config.micro_batch;
  }
  EXPECT_EQ(answer_of(plan).chains.size(), 1U);
  plan.experiments.back().experiment.config.accumulation_steps = 3;
  EXPECT_EQ(answer_of(plan).chains.size(), 5U);
}

TEST(PlanAnswerTest, AsksOnlyForWhatIsNoMemberAndFewTimes) {
  const ToyModel model{.device_memory_bytes = test::toy_gib};
  const DryRun hopeless = toy_plan(model, {.stages = {0}});
  EXPECT_TRUE(answer_of(hopeless).changes.changes.empty());
  EXPECT_GT(model.num_asked, 5);
  EXPECT_LE(model.num_asked, 48);

  // A sixteenth as a member, which says otherwise than the model would.
  const ToyModel other;
  DryRun plan = toy_plan(other, {.micro_batches = {8, 16}});
  plan.experiments.push_back(plan.experiments.back());
  plan.experiments.back().experiment.name = "halved";
  TrainingConfig& config = plan.experiments.back().experiment.config;
  config.micro_batch = 8;
  config.accumulation_steps = 2;
  plan.experiments.back().predicted.verdict = MemoryVerdict::fits;
  plan.experiments.back().predicted.throughput =
      plan.experiments.back().predicted.target_throughput = 1000;
  const PlanAnswer answer = answer_of(without_what_if(plan));
  ASSERT_EQ(answer.changes.changes.size(), 1U);
  EXPECT_EQ(answer.changes.changes[0].planned.experiment.name, "halved");
}

TEST(PlanAnswerTest, SaysNothingOfChangesWhereNobodyCanTell) {
  const ToyModel model;
  const DryRun plan = without_what_if(toy_plan(model));
  const PlanAnswer answer = answer_of(plan);
  EXPECT_EQ(name_at(plan, answer.changes.subject), "z3_gas1_tmbspg16");
  EXPECT_TRUE(answer.changes.changes.empty());
  EXPECT_THAT(dry_run_text(plan), Not(HasSubstr("change")));
  EXPECT_THAT(dry_run_text(plan), Not(HasSubstr("smallest number")));
}

TEST(PlanAnswerTest, OrdersChangesBySpeedAndElseByUsualCost) {
  // Three samples: 12 GiB of activations beside 16 GiB of states.
  const auto changes_with = [](const ToyModel& model) {
    std::vector<std::string> texts;
    for (const PlanChange& change :
         answer_of(toy_plan(model, {.stages = {0}, .micro_batches = {3}})).changes.changes)
      texts.push_back(change.text);
    return texts;
  };
  const std::string accumulation = "micro-batch 1 with accumulation 3";
  const ToyModel slow{.device_memory_bytes = 24 * test::toy_gib, .has_speed = false};
  EXPECT_EQ(changes_with(slow),
            (std::vector<std::string>{"stage 1", accumulation, "recompute block",
                                      "16 GPUs and stage 3"}));
  const ToyModel quick{.device_memory_bytes = 24 * test::toy_gib, .recompute_slowdown = 1.01};
  EXPECT_EQ(changes_with(quick), (std::vector<std::string>{"stage 1", "recompute block",
                                                           accumulation, "16 GPUs and stage 3"}));
}

TEST(PlanAnswerTest, JoinsChangesWhereNoneIsEnough) {
  // Stage 3 leaves 2 GiB of states, of which 1.5 can be on the host, recompute 1 GiB of a sample.
  const ToyModel model{.device_memory_bytes = 3 * test::toy_gib};
  const DryRun plan = toy_plan(model, {.stages = {0}, .micro_batches = {2}});
  const PlanAnswer answer = answer_of(plan);
  ASSERT_FALSE(answer.changes.changes.empty());
  const PlanChange& change = answer.changes.changes.front();
  EXPECT_EQ(change.kind, ChangeKind::several);
  EXPECT_EQ(change.text,
            "micro-batch 1 with accumulation 2 and stage 3 and recompute block and all of the "
            "optimizer's states on the host");
  EXPECT_EQ(change.keys["/zero_optimization/stage"], 3);
  EXPECT_EQ(change.keys["/gradient_accumulation_steps"], 2);
  EXPECT_EQ(change.keys["/zero_optimization/offload_optimizer/device"], "cpu");
}

TEST(PlanAnswerTest, FindsTheSmallestNumberOfGpus) {
  // At stage 3 a sample needs 4 GiB and 16 GiB over the ranks; 5.4 GiB fit.
  const ToyModel model{.device_memory_bytes = 6 * test::toy_gib};
  DryRun plan = toy_plan(model, {.micro_batches = {1}, .shape = {2, 1}});
  plan.head.machine = {8, 4};
  const PlanChanges more = answer_of(plan).changes;
  EXPECT_EQ(more.smallest_num_gpus, 16);
  EXPECT_EQ(more.tried_num_gpus, (std::vector<int>{2, 4, 8, 16}));
  EXPECT_EQ(more.changes.back().planned.experiment.shape, (GroupShape{8, 2}));
  const PlanChanges fewer =
      answer_of(toy_plan(model, {.micro_batches = {1}, .shape = {8, 8}})).changes;
  EXPECT_EQ(fewer.smallest_num_gpus, 16);
  EXPECT_EQ(fewer.tried_num_gpus, (std::vector<int>{8, 16, 32, 64}));
  // Whole nodes between are tried, and GPUs of one.
  const ToyModel of_nodes{.device_memory_bytes = 52 * test::toy_gib / 10};
  const PlanChanges nodes =
      answer_of(toy_plan(of_nodes, {.micro_batches = {1}, .shape = {8, 8}})).changes;
  EXPECT_EQ(nodes.tried_num_gpus, (std::vector<int>{16, 24, 32, 64}));
  EXPECT_EQ(nodes.smallest_num_gpus, 24);
  DryRun of_two = toy_plan(of_nodes, {.micro_batches = {1}, .shape = {8, 2}});
  of_two.head.machine = {8, 4};
  EXPECT_EQ(answer_of(of_two).changes.smallest_num_gpus, 24);
  const ToyModel of_gpus{.device_memory_bytes = 105 * test::toy_gib / 10};
  const PlanChanges gpus =
      answer_of(toy_plan(of_gpus, {.micro_batches = {1}, .shape = {8, 1}})).changes;
  EXPECT_EQ(gpus.tried_num_gpus, (std::vector<int>{2, 3, 4, 8}));
  EXPECT_EQ(gpus.smallest_num_gpus, 3);
  // Stage 3 is tried where stage 0 holds everything.
  const PlanChanges staged =
      answer_of(toy_plan(model, {.stages = {0}, .micro_batches = {1}})).changes;
  EXPECT_EQ(staged.smallest_num_gpus, 16);
  EXPECT_EQ(staged.smallest_with, "z0_gas1_tmbspg1 at stage 3");
}

TEST(PlanAnswerTest, TellsALargerMicroBatchThanTheSpaceHas) {
  const ToyModel model;
  const DryRun plan = toy_plan(model, {.micro_batches = {1, 2}});
  EXPECT_EQ(answer_of(plan).changes.larger_micro_batch, 8);
  EXPECT_THAT(dry_run_text(plan), HasSubstr("is 2, the largest that its configuration has here ("));
  EXPECT_THAT(dry_run_text(plan), HasSubstr("; 8 would fit as well.\n"));
}

TEST(PlanAnswerTest, ReturnsToTheDeviceWhatTheHostHasNoRoomFor) {
  const ToyModel model;
  DryRun plan = toy_plan(model, {.micro_batches = {1}});
  plan.experiments[0].experiment.config.offload_optimizer = OffloadDevice::cpu;
  plan.experiments[0].predicted.verdict = MemoryVerdict::does_not_fit;
  plan.experiments[0].predicted.because = "the host has no room";
  const PlanAnswer answer = answer_of(plan);
  ASSERT_FALSE(answer.changes.changes.empty());
  EXPECT_EQ(answer.changes.changes.front().text, "the optimizer's states on the device");
  EXPECT_EQ(answer.changes.changes.front().keys.dump(),
            R"({"/zero_optimization/offload_optimizer/device":"none"})");
}

TEST(PlanAnswerJsonTest, FollowsItsSchemaAndHasEveryKey) {
  const test::SchemaCheck<json::Value> schema(DSTUNE_PLAN_SCHEMA);
  const ToyModel usual, unknown{.device_memory_bytes = 0, .has_speed = false};
  const ToyModel small{.device_memory_bytes = 3 * test::toy_gib};
  for (const ToyModel* model : {&usual, &unknown, &small}) {
    DryRun plan = toy_plan(*model, {.stages = {0, 3}});
    plan.experiments.back().status = PlanStatus::pruned;
    plan.experiments.back().reason = "runs exactly as another";
    plan.sources = {{"memory of the device", "--device a100-40gb"}};
    EXPECT_THAT(schema.problems_of(dry_run_json(plan)), testing::IsEmpty());
    EXPECT_THAT(schema.problems_of(dry_run_json(without_what_if(plan))), testing::IsEmpty());
  }
  EXPECT_THAT(schema.problems_of(dry_run_json(DryRun())), testing::IsEmpty());
  json::Value wrong = dry_run_json(toy_plan(usual));
  wrong["answer"].erase("hours");
  wrong["answer"]["more"] = 1;
  wrong["experiments"][0]["predicted"]["verdict"] = "maybe";
  wrong["head"]["layers"] = "many";
  EXPECT_EQ(schema.problems_of(wrong).size(), 4U);
}

TEST(PlanAnswerJsonTest, HasTheFactsOfTheSentences) {
  const ToyModel model;
  const json::Value value = dry_run_json(toy_plan(model));
  const json::Value& answer = value["answer"];
  EXPECT_EQ(answer["largest_micro_batch"]["name"], "z3_gas1_tmbspg8");
  EXPECT_EQ(answer["largest_micro_batch"]["micro_batch"], 8);
  EXPECT_EQ(answer["largest_micro_batch"]["memory_bytes"], 34 * test::toy_gib);
  EXPECT_EQ(answer["fastest"]["name"], "z3_gas1_tmbspg8");
  EXPECT_EQ(answer["changes_of"]["name"], "z3_gas1_tmbspg16");
  EXPECT_EQ(answer["cheapest_change"]["kind"], "accumulation");
  EXPECT_EQ(answer["cheapest_change"]["keys"]["/train_micro_batch_size_per_gpu"], 8);
  EXPECT_TRUE(answer["cheapest_change"]["then"]["name"].is_null());
  EXPECT_EQ(answer["smallest_num_gpus"], 1);
  EXPECT_EQ(answer["hours"].dump(), R"({"num_gpus":8,"elapsed":0.5,"gpu_hours":4.0})");
  EXPECT_EQ(answer["does_not_fit"][0]["count"], 3);
  EXPECT_EQ(value["head"]["parameters"], 6'738'415'616);
  EXPECT_EQ(value["head"]["settings"]["micro_batch"]["most"], 64);
  const json::Value& predicted = value["experiments"][4]["predicted"];
  EXPECT_EQ(predicted["verdict"], "does_not_fit");
  EXPECT_EQ(predicted["because"], "activations are the largest part (64.0 GiB)");
  EXPECT_EQ(predicted["target_memory_shown_bytes"], 67 * test::toy_gib);
  EXPECT_LT(predicted["throughput_low"], predicted["throughput_high"]);
  EXPECT_EQ(value["experiments"][0]["recompute"], "none");
  EXPECT_EQ(value["experiments"][0]["sequence_length"], 1024);
}

}  // namespace
}  // namespace dstune
