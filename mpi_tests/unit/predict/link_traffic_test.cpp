/// The bytes that collectives put on a node's link: figures that the kernel's counters showed.

#include "dstune/predict/link_traffic.hpp"

#include <gtest/gtest.h>

#include "dstune/core/target_time.hpp"
#include "dstune/predict/step_predictor.hpp"
#include "plan_fixtures.hpp"

namespace dstune {
namespace {

constexpr std::int64_t buffer_bytes = 4 << 20;

LinkTraffic of_kind(WorkKind kind, GroupShape shape, std::int64_t count = 0,
                    std::int64_t stride = 0) {
  Work work{.kind = kind};
  work.width = count;
  work.depth = stride;
  work.size = buffer_bytes;
  return link_traffic(work, shape);
}

Experiment experiment_of(const TrainingConfig& config, GroupShape shape) {
  Experiment experiment;
  experiment.shape = shape;
  experiment.config = config;
  return experiment;
}

struct Counted {
  WorkKind kind;
  double gloo;  ///< bytes on the fuller way of a node's link, of those of the buffer
};

/// Counted by mpi_tests/bench/two_hosts.py with PyTorch 2.15 at 4 MiB, with what goes along beside
/// the data: up to 0.4 %.
void expect_counts(GroupShape shape, std::initializer_list<Counted> all) {
  for (const auto& [kind, gloo] : all) {
    const double bytes = of_kind(kind, shape).gloo;
    EXPECT_NEAR(bytes / buffer_bytes, gloo, 0.005 * gloo) << static_cast<int>(kind);
  }
}

TEST(LinkTrafficTest, GlooSendsWhatWasCounted) {
  using enum WorkKind;
  expect_counts({1, 2}, {{all_reduce, 1.002}, {reduce, 1.001}, {reduce_scatter, 1.002}});
  expect_counts(
      {2, 2}, {{all_reduce, 1.504}, {reduce, 1.253}, {reduce_scatter, 1.504}, {all_gather, 0.752}});
  expect_counts(
      {1, 4}, {{all_reduce, 1.504}, {reduce, 1.503}, {reduce_scatter, 1.504}, {all_gather, 0.752}});
}

/// Half of the bytes goes each way, one after the other. All-reduces use both ways at once.
TEST(LinkTrafficTest, TwoRanksOfGlooTakeTurns) {
  EXPECT_EQ(of_kind(WorkKind::all_gather, {1, 2}).gloo, 0.75 * buffer_bytes);
  EXPECT_EQ(of_kind(WorkKind::all_to_all, {1, 2}).gloo, buffer_bytes);
  EXPECT_EQ(of_kind(WorkKind::all_to_all, {2, 2}).gloo, 1.25 * buffer_bytes);
}

TEST(LinkTrafficTest, TheStepHereSendsEachRanksPartOfASumAndEachSliceOnce) {
  using enum WorkKind;
  EXPECT_EQ(of_kind(all_reduce, {1, 2}).here, buffer_bytes);
  EXPECT_EQ(of_kind(reduce_scatter, {1, 2}).here, 0.5 * buffer_bytes);
  EXPECT_EQ(of_kind(all_gather, {1, 2}).here, 0.5 * buffer_bytes);
  EXPECT_EQ(of_kind(all_to_all, {1, 2}).here, 0.5 * buffer_bytes);
  EXPECT_EQ(of_kind(all_reduce, {2, 2}).here, 1.5 * buffer_bytes);
  EXPECT_EQ(of_kind(reduce_scatter, {2, 2}).here, buffer_bytes);
  EXPECT_EQ(of_kind(all_gather, {2, 2}).here, 0.5 * buffer_bytes);
  // With many ranks a node a ring sends less.
  EXPECT_GT(of_kind(all_reduce, {8, 2}).here, of_kind(all_reduce, {8, 2}).gloo);
}

TEST(LinkTrafficTest, PartsShareTheLinkAndThoseOfANodeDoNotUseIt) {
  using enum WorkKind;
  EXPECT_EQ(of_kind(all_reduce, {4, 1}).gloo, 0);
  EXPECT_EQ(of_kind(all_gather, {4, 2}, 4, 1).here, 0);
  // Four pairs across, at the same time.
  EXPECT_EQ(of_kind(all_gather, {4, 2}, 2, 4).here, 4 * 0.5 * buffer_bytes);
  EXPECT_EQ(of_kind(all_gather, {4, 2}, 2, 4).gloo, 4 * 0.75 * buffer_bytes);
  EXPECT_EQ(of_kind(add, {1, 2}).here, 0);
}

TEST(LinkTrafficTest, ARateIsOfLongCollectivesThatCrossTheLink) {
  DeviceProfile profile;
  EXPECT_EQ(link_byte_s(profile), 0);
  const auto curve = [](WorkKind kind, std::vector<TimePoint> points) {
    return TimeCurve{Work{.kind = kind}, std::move(points)};
  };
  GroupProfile inside;
  inside.shape = {2, 1};
  inside.collectives = {curve(WorkKind::all_reduce, {{buffer_bytes, 1e-4}})};
  profile.groups = {inside};
  EXPECT_EQ(link_byte_s(profile), 0);
  GroupProfile across;
  across.shape = {1, 2};
  // A byte takes 1e-8 s; the gather waited for its peer, and a buffer took in what was short.
  across.collectives = {
      curve(WorkKind::all_reduce, {{1000, 1e-6}, {buffer_bytes, 1e-8 * buffer_bytes}}),
      curve(WorkKind::all_gather, {{buffer_bytes, 1e-8 * buffer_bytes}}),
      curve(WorkKind::reduce, {{1000, 1e-9}})};
  profile.groups.push_back(across);
  EXPECT_NEAR(link_byte_s(profile), 1e-8, 1e-12);
}

/// Of a model's whole steps: stage 0 all-reduces gradients, which gloo does as well as it can be
/// done. Stages 1 to 3 gather, and stage 3 reduces to shards.
TEST(LinkTrafficTest, StagesDifferInWhatGlooDoesBeyond) {
  const auto traffic = [](int stage, GroupShape shape, std::int64_t micro_steps = 1) {
    TrainingConfig config = test::tiny_config(stage);
    config.accumulation_steps = micro_steps;
    const test::SomeWorkspaces workspaces;
    StepPredictor predictor(test::tiny_llama(), std::nullopt, workspaces);
    const Experiment experiment = experiment_of(config, shape);
    EXPECT_EQ(predictor.overheads(experiment)[static_cast<std::size_t>(Overhead::link_byte)],
              predictor.traffic(experiment).gloo - predictor.traffic(experiment).here);
    return predictor.traffic(experiment);
  };
  EXPECT_EQ(traffic(3, {2, 1}).gloo, 0);
  EXPECT_EQ(traffic(3, {2, 1}).here, 0);
  const LinkTraffic stage0 = traffic(0, {1, 2});
  EXPECT_GT(stage0.here, 0);
  EXPECT_EQ(stage0.gloo, stage0.here);
  const LinkTraffic stage3 = traffic(3, {1, 2});
  EXPECT_GT(stage3.gloo, 1.5 * stage3.here);
  // Stage 0 reduces once a step, stage 3 communicates in each micro-step.
  EXPECT_EQ(traffic(0, {1, 2}, 4).here, stage0.here);
  EXPECT_GT(traffic(3, {1, 2}, 4).here, 3.5 * stage3.here);
}

/// Bytes that the busier way of a link carried in a step of DeepSpeed 0.19.8's engine, two hosts:
/// LLaMA of fidelity-small-llama.config.json, 2 sequences of 64 tokens.
struct CountedStep {
  GroupShape shape;
  int stage;
  std::int64_t micro_steps;
  double bytes;
};
constexpr CountedStep counted_steps[] = {
    {{1, 2}, 0, 1, 5324410},  {{1, 2}, 0, 4, 5325268},  {{1, 2}, 1, 1, 7987150},
    {{1, 2}, 1, 4, 7987744},  {{1, 2}, 2, 1, 7988140},  {{1, 2}, 2, 4, 24025522},
    {{1, 2}, 3, 1, 8013452},  {{1, 2}, 3, 4, 27142298}, {{2, 2}, 0, 1, 7989910},
    {{2, 2}, 0, 4, 7990492},  {{2, 2}, 1, 1, 11985296}, {{2, 2}, 1, 4, 11984398},
    {{2, 2}, 2, 1, 11984372}, {{2, 2}, 2, 4, 35949974}, {{2, 2}, 3, 1, 12068788},
    {{2, 2}, 3, 4, 40765090},
};

TEST(LinkTrafficTest, StepsOfDeepSpeedPutTheCountedBytesOnTheLink) {
  ModelSpec model = test::tiny_llama();
  model.hidden_size = 128;
  model.num_layers = 4;
  model.num_heads = model.num_kv_heads = 4;
  model.head_size = 32;
  model.intermediate_size = 352;
  model.vocab_size = 2048;
  model.max_positions = 128;
  model.tie_embeddings = false;
  const test::SomeWorkspaces workspaces;
  StepPredictor predictor(model, std::nullopt, workspaces);
  for (const auto& [shape, stage, micro_steps, bytes] : counted_steps) {
    TrainingConfig config;
    config.zero_stage = stage;
    config.micro_batch = 2;
    config.sequence_length = 64;
    config.accumulation_steps = micro_steps;
    const LinkTraffic traffic = predictor.traffic(experiment_of(config, shape));
    // `gloo` counts the turns of pairs, too.
    const double planned = shape.num_gpus == 1 ? traffic.sent : traffic.gloo;
    EXPECT_NEAR(planned, bytes, 0.01 * bytes) << stage << " " << micro_steps;
    EXPECT_GE(traffic.gloo, planned);
  }
}

/// A step that takes 1 s on the link here, whose collectives gloo makes of twice the bytes, takes 2
/// s there: kernels' scale is none of the link's.
TEST(LinkTrafficTest, TheLinksTimeIsNotScaled) {
  TimeCalibration time;
  time.scale.fill(1.5);
  of(time.costs_s, Overhead::recompute) = 0.1;
  of(time.costs_s, Overhead::link_byte) = 1e-8;
  of(time.costs_s, Overhead::communicated_byte) = 2e-9;
  of(time.costs_s, Overhead::small_call_byte) = 1e-9;
  const LinkTraffic traffic{.here = 1e8, .gloo = 2e8, .sent = 1.5e8, .in_small_calls = 1e6};
  Overheads counts{};
  of(counts, Overhead::recompute) = 1;
  of(counts, Overhead::communicated_byte) = 1.5e8;
  of(counts, Overhead::small_call_byte) = 1e6;
  const Overheads linked = with_link(counts, traffic, time, Precision::fp32);
  EXPECT_NEAR(time.target_s(1, Precision::fp32, linked), 2, 1e-9);
  // A second of kernels beside it is scaled.
  EXPECT_NEAR(time.target_s(2, Precision::fp32, linked), 2 + 1.5 * 1.1, 1e-9);
  // A fast link waits for gloo's own work on the bytes.
  of(time.costs_s, Overhead::link_byte) = 1e-10;
  const Overheads fast = with_link(counts, traffic, time, Precision::fp32);
  EXPECT_NEAR(time.target_s(0.01, Precision::fp32, fast), 1.5e8 * 2e-9 + 1e6 * 1e-9, 1e-9);
}

/// The predictor's plans have equal layers folded.
TEST(LinkTrafficTest, FoldedLayersCountAsOftenAsTheyAre) {
  ModelSpec model = test::tiny_llama();
  model.num_layers = 24;
  const test::SomeWorkspaces workspaces;
  const GroupShape shape{1, 2};
  for (const int stage : {2, 3}) {
    const TrainingConfig config = test::tiny_config(stage);
    StepPredictor predictor(model, std::nullopt, workspaces);
    const LinkTraffic folded = predictor.traffic(experiment_of(config, shape));
    const StepPlan plan = build_step_plan(model, config, shape.size(), 0, workspaces);
    LinkTraffic whole;
    for (const Segment& segment : plan.cycle) {
      EXPECT_EQ(segment.repeat, 1);
      whole += link_traffic(plan, segment, shape);
    }
    EXPECT_GT(whole.here, 0);
    EXPECT_NEAR(folded.here, whole.here, 1e-9 * whole.here);
    EXPECT_NEAR(folded.gloo, whole.gloo, 1e-9 * whole.gloo);
    EXPECT_NEAR(folded.sent, whole.sent, 1e-9 * whole.sent);
  }
}

}  // namespace
}  // namespace dstune
