/// The collectives of plans against those of DeepSpeed itself, recorded by
/// scripts/tools/deepspeed_traffic.py: of every micro-step and of the update, kind, elements and
/// type.

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "dstune/base/json.hpp"
#include "dstune/core/experiment.hpp"
#include "dstune/core/settings.hpp"
#include "plan_fixtures.hpp"

namespace dstune {
namespace {

/// Kind, elements of the whole buffer, type; in DeepSpeed's words. Ranks, where these are not all.
using Call = std::tuple<std::string, std::int64_t, std::string, std::vector<int>>;

std::string name_of(DType type) {
  if (type == DType::i8) return "int8";
  return type == DType::f32 ? "float32" : type == DType::bf16 ? "bfloat16" : "float16";
}

const char* name_of_call(WorkKind kind) {
  switch (kind) {
    case WorkKind::reduce_scatter:
      return "reduce_scatter_tensor";
    case WorkKind::all_gather:
      return "all_gather_into_tensor";
    case WorkKind::all_to_all:
      return "all_to_all_single";
    default:
      return kind == WorkKind::reduce ? "reduce" : "all_reduce";
  }
}

/// In order of size: DeepSpeed does not say which of several owners comes first.
std::vector<Call> calls_of(const StepPlan& plan, const std::vector<Step>& steps) {
  std::vector<Call> calls;
  const auto add = [&](const char* kind, std::int64_t elements, View data, RankRange among = {}) {
    const PlannedTensor& tensor = plan.tensors[static_cast<std::size_t>(data.tensor)];
    std::vector<int> ranks;
    for (int index = 0; index < among.count; ++index) ranks.push_back(among.rank(index));
    calls.emplace_back(kind, elements, name_of(tensor.dtype), ranks);
  };
  for (const Step& step : steps) {
    const auto collective = collective_of(step.operation, plan.group_size);
    if (!collective) continue;
    add(name_of_call(*traits_of(step.operation).work), collective->elements, collective->data,
        collective->among);
  }
  std::sort(calls.begin(), calls.end());
  return calls;
}

std::vector<Call> traced(const json::Value& events) {
  std::vector<Call> calls;
  for (const json::Value& event : events)
    calls.emplace_back(event[0].get<std::string>(), event[1].get<std::int64_t>(),
                       event[2].get<std::string>(),
                       event.size() > 3 ? event[3].get<std::vector<int>>() : std::vector<int>());
  std::sort(calls.begin(), calls.end());
  return calls;
}

TrainingConfig config_of(const json::Value& given, const std::string& name, GroupShape shape) {
  const json::Document document = json::Document::parse(given.dump(), name);
  json::Problems problems;
  TrainingConfig config =
      training_config(read_config(knob_table({0, 19, 6}), document.node(), problems));
  EXPECT_TRUE(problems.all().empty()) << name << ": " << problems.all().front().message;
  config.micro_batch = 2;
  config.accumulation_steps = given.at("gradient_accumulation_steps").get<std::int64_t>();
  config.sequence_length = 7;
  place_on(shape, config);
  return config;
}

/// Model like tiny_gpt2, but of these sizes.
ModelSpec model_of_sizes(const json::Value& sizes) {
  ModelSpec model = test::tiny_gpt2();
  sizes.at("hidden_size").get_to(model.hidden_size);
  sizes.at("intermediate_size").get_to(model.intermediate_size);
  sizes.at("vocab_size").get_to(model.vocab_size);
  sizes.at("max_positions").get_to(model.max_positions);
  model.head_size = model.hidden_size / model.num_heads;
  return model;
}

TEST(DeepSpeedTrafficTest, PlansCallWhatDeepSpeedCalls) {
  const json::Document document = json::Document::read(DSTUNE_DEEPSPEED_TRAFFIC);
  const int of_node = document.root().at("ranks_per_node").get<int>();
  int cases = 0;
  for (const json::Value& each : document.root().at("cases")) {
    const auto name = each.at("name").get<std::string>();
    const int ranks = each.at("ranks").get<int>();
    const StepPlan plan =
        test::build(each.contains("model") ? model_of_sizes(each.at("model")) : test::tiny_gpt2(),
                    config_of(each.at("config"), name, {of_node, ranks / of_node}), ranks);
    std::vector<Call> update;
    std::vector<std::vector<Call>> micro_steps;
    for (const Segment& segment : plan.cycle) {
      std::vector<Call> calls = calls_of(plan, segment.steps);
      const bool is_update =
          segment.kind == Segment::Kind::update || segment.kind == Segment::Kind::guarded_update;
      for (std::int64_t i = 0; i < segment.repeat && !is_update; ++i) micro_steps.push_back(calls);
      if (is_update) update.insert(update.end(), calls.begin(), calls.end());
    }
    // Stage 0 reduces at the end of the last backward, which here belongs to the update.
    if (plan.config.zero_stage == 0) {
      micro_steps.back().swap(update);
      EXPECT_TRUE(update.empty()) << name;
    }
    ASSERT_EQ(micro_steps.size(), each.at("micro_steps").size()) << name;
    for (std::size_t i = 0; i < micro_steps.size(); ++i)
      EXPECT_EQ(micro_steps[i], traced(each.at("micro_steps")[i])) << name << ", micro-step " << i;
    EXPECT_EQ(update, traced(each.at("update"))) << name;
    ++cases;
  }
  EXPECT_EQ(cases, 49);
}

}  // namespace
}  // namespace dstune
