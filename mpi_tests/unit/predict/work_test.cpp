#include "dstune/predict/work.hpp"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "plan_fixtures.hpp"

namespace dstune {
namespace {

template <class Op>
const Op& first(const StepPlan& plan) {
  for (const Segment& segment : plan.cycle) {
    for (const Step& step : segment.steps)
      if (const auto* found = std::get_if<Op>(&step.operation)) return *found;
  }
  throw std::out_of_range("the plan has no such operation");
}

TEST(WorkTest, EveryOperationOfAGroupThatTakesTimeIsWork) {
  for (const ModelFamily family :
       {ModelFamily::gpt2, ModelFamily::llama, ModelFamily::gpt_neox, ModelFamily::qwen3,
        ModelFamily::bert, ModelFamily::olmo2, ModelFamily::gemma3_text, ModelFamily::falcon}) {
    for (int stage = 0; stage <= 3; ++stage) {
      TrainingConfig config = test::tiny_config(stage);
      config.accumulation_steps = 2;
      config.precision = Precision::fp16;
      const StepPlan plan = test::build(test::tiny_model(family), config, 2);
      for (const Segment& segment : plan.cycle) {
        for (const Step& step : segment.steps) {
          const auto work = work_of(plan, step.operation);
          const OperationKind operation = kind_of(step.operation);
          EXPECT_TRUE(operation == OperationKind::exchange ||
                      work.has_value() != (operation == OperationKind::order));
          EXPECT_TRUE(!work || amount(*work) > 0) << to_text(work->kind);
        }
      }
    }
  }
}

TEST(WorkTest, AGroupOfOneHasNoCollective) {
  const StepPlan plan = test::build(test::tiny_gpt2(), test::tiny_config(3), 1);
  for (const Segment& segment : plan.cycle) {
    for (const Step& step : segment.steps) {
      const auto work = work_of(plan, step.operation);
      EXPECT_FALSE(work && is_collective(work->kind));
    }
  }
}

TEST(WorkTest, AProductsSizeCountsTokensInEveryDirection) {
  const ModelSpec model = test::tiny_gpt2();
  TrainingConfig config = test::tiny_config(0);
  const StepPlan small = test::build(model, config, 1);
  config.micro_batch *= 3;
  const StepPlan large = test::build(model, config, 1);
  std::size_t products = 0;
  for (std::size_t i = 0; i < small.cycle[0].steps.size(); ++i) {
    const auto one = work_of(small, small.cycle[0].steps[i].operation);
    const auto other = work_of(large, large.cycle[0].steps[i].operation);
    if (!one || !is_product(one->kind)) continue;
    ++products;
    EXPECT_TRUE(is_same_curve(*one, *other));
    EXPECT_EQ(one->size, 14);
    EXPECT_EQ(other->size, 42);
    EXPECT_DOUBLE_EQ(amount(*other), 3 * amount(*one));
  }
  EXPECT_EQ(products, 3U * (4 * 3 + 1));
}

TEST(WorkTest, AProductWithItsActivationHasTheWorkOfBoth) {
  const StepPlan fused = test::build(test::tiny_gpt2(), test::tiny_config(0), 1);
  // The same sizes, but another activation.
  ModelSpec model = test::tiny_gpt2();
  model.architecture.activation = Activation::gelu;
  const StepPlan apart = test::build(model, test::tiny_config(0), 1);
  const auto works_of = [](const StepPlan& plan) {
    std::multiset<std::tuple<WorkKind, std::int64_t, std::int64_t, std::int64_t>> works;
    const auto add = [&](const Work& work) {
      works.emplace(work.kind, work.width, work.depth, work.size);
    };
    for (const Step& step : plan.cycle[0].steps) {
      const auto work = work_of(plan, step.operation);
      if (!work) continue;
      const auto parts = parts_of(*work);
      add(parts ? parts->first : *work);
      if (!parts) continue;
      const bool is_activated = parts->second.kind != WorkKind::bias_backward;
      EXPECT_FALSE(parts->first.has(WorkFlag::gelu_tanh));
      EXPECT_EQ(parts->second.has(WorkFlag::gelu_tanh), is_activated);
      add(parts->second);
    }
    return works;
  };
  EXPECT_EQ(works_of(fused), works_of(apart));
}

TEST(WorkTest, AGradientOfABiasIsTheWorkOfItsColumnSums) {
  TrainingConfig config = test::tiny_config(0);
  config.accumulation_steps = 2;
  const StepPlan plan = test::build(test::tiny_gpt2(), config, 1);
  int gradients = 0;
  for (const std::size_t micro_step : {0, 1}) {
    for (const Step& step : plan.cycle[micro_step].steps) {
      const auto* product = std::get_if<op::Matmul>(&step.operation);
      if (product == nullptr || !product->d_bias) continue;
      const auto parts = parts_of(*work_of(plan, *product));
      ASSERT_TRUE(parts);
      op::Matmul alone = *product;
      alone.d_bias = {};
      EXPECT_EQ(parts->first, *work_of(plan, alone));
      const op::BiasBackward sums{product->d_bias, product->a,    {}, product->k, product->m,
                                  product->m,      micro_step > 0};
      EXPECT_EQ(parts->second, *work_of(plan, sums));
      ++gradients;
    }
  }
  EXPECT_EQ(gradients, 2 * 4 * 3);
}

// Rounded to whole positions.
TEST(WorkTest, AWindowSavesAttentionsWork) {
  ModelSpec model = test::tiny_llama();
  const TrainingConfig config = test::tiny_config(0);
  const auto amount_of = [&] {
    const StepPlan plan = test::build(model, config, 1);
    return amount(*work_of(plan, first<op::AttentionForward>(plan)));
  };
  const double full = amount_of();
  model.attention_window = 7;
  EXPECT_EQ(amount_of(), full);
  model.attention_window = 3;
  EXPECT_NEAR(amount_of() / full, 3 * (7 - 1.5) / 24.5, 0.1);
}

TEST(WorkTest, LayersAreAlike) {
  const StepPlan plan = test::build(test::tiny_gpt2(), test::tiny_config(0), 2);
  std::vector<Work> seen;
  std::size_t num_steps = 0;
  for (const Step& step : plan.cycle[0].steps) {
    const auto work = work_of(plan, step.operation);
    if (!work) continue;
    ++num_steps;
    if (std::find(seen.begin(), seen.end(), *work) == seen.end()) seen.push_back(*work);
  }
  EXPECT_LT(seen.size() * 2, num_steps);
}

TEST(WorkTest, CollectivesCountTheBytesOfAllRanks) {
  TrainingConfig config = test::tiny_config(3);
  config.precision = Precision::bf16;
  const StepPlan plan = test::build(test::tiny_gpt2(), config, 4);
  const auto& gather = first<op::AllGather>(plan);
  const auto work = work_of(plan, gather);
  EXPECT_EQ(work->kind, WorkKind::all_gather);
  EXPECT_EQ(work->size, gather.count_per_rank * 4 * 2);
  EXPECT_EQ(work->type, DType::bf16);
}

TEST(WorkTest, QuantizedTrafficIsItsCodesAndScales) {
  TrainingConfig config = test::tiny_config(3);
  config.zero_quantized_weights = config.zero_quantized_gradients = true;
  config.precision = Precision::fp16;
  config.ranks_per_node = 2;
  const StepPlan plan = test::build(test::even_gpt2(4), config, 4);
  for (const Segment& segment : plan.cycle) {
    for (const Step& step : segment.steps) {
      const auto work = work_of(plan, step.operation);
      EXPECT_TRUE(!work || amount(*work) > 0) << to_text(work->kind);
    }
  }
  const auto& codes = first<op::Quantize>(plan);
  const auto quantize = work_of(plan, codes);
  EXPECT_EQ(quantize->kind, WorkKind::quantize);
  EXPECT_EQ(quantize->type, DType::f16);
  EXPECT_DOUBLE_EQ(amount(*quantize), 5.0 * static_cast<double>(codes.count));
  const auto dequantize = work_of(plan, first<op::Dequantize>(plan));
  EXPECT_DOUBLE_EQ(amount(*dequantize), 3.0 * static_cast<double>(dequantize->size));
  const auto& exchange = first<op::AllToAll>(plan);
  const auto exchanged = work_of(plan, exchange);
  EXPECT_EQ(exchanged->kind, WorkKind::all_to_all);
  EXPECT_EQ(exchanged->size, exchange.count_per_rank * 2);  // bytes, of two ranks
  EXPECT_EQ(exchanged->width, 2);
  EXPECT_EQ(exchanged->depth, 1);
}

TEST(WorkTest, NamesAreReadAsTheyAreWritten) {
  std::set<std::string_view> names;
  for (int kind = 0; kind < num_work_kinds; ++kind) {
    const auto text = to_text(static_cast<WorkKind>(kind));
    EXPECT_EQ(from_text<WorkKind>(text), static_cast<WorkKind>(kind));
    names.insert(text);
  }
  for (int flag = 0; flag < num_work_flags; ++flag)
    names.insert(to_text(static_cast<WorkFlag>(flag)));
  EXPECT_EQ(names.size(), static_cast<std::size_t>(num_work_kinds + num_work_flags));
  EXPECT_FALSE(from_text<WorkKind>("gemm"));
}

}  // namespace
}  // namespace dstune
