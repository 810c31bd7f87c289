/// Gradients of the whole step against finite differences of the reference's loss.

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "dstune/kernels/kernels.hpp"
#include "dstune/train/executor.hpp"
#include "reference_model.hpp"
#include "thread_group.hpp"

namespace dstune {
namespace {

constexpr std::uint64_t fixed_seed = 11;

ModelSpec small_model(ModelFamily family, bool tied) {
  ModelSpec model;
  model.family = family;
  model.architecture = architecture_of(family);
  model.hidden_size = 16;
  model.num_layers = 2;
  model.num_heads = 4;
  model.num_kv_heads = model.architecture.norm == NormKind::rms ? 2 : 4;
  // Of gpt_neox's heads a quarter turns, and that must be even.
  model.head_size = family == ModelFamily::gpt_neox ? 8 : 4;
  model.intermediate_size = 24;
  model.vocab_size = 23;
  model.max_positions = 9;
  model.tie_embeddings = tied;
  // Larger than usual, so that every part of the model matters to the loss.
  model.initializer_range = 0.3;
  return model;
}

ModelSpec sequential_gpt_neox() {
  ModelSpec model = small_model(ModelFamily::gpt_neox, false);
  model.architecture.block = BlockKind::sequential;
  return model;
}

/// One key head for all; `shared`: one norm for both branches.
ModelSpec small_falcon(bool shared) {
  ModelSpec model = small_model(ModelFamily::falcon, true);
  model.num_kv_heads = shared ? 1 : 2;
  model.architecture.shared_norm = shared;
  return model;
}

/// A llama with every bias, and rotations of half a head.
ModelSpec biased_llama() {
  ModelSpec model = small_model(ModelFamily::llama, false);
  model.architecture.qkv_bias = model.architecture.projection_bias = model.architecture.mlp_bias =
      true;
  model.architecture.rotary_fraction = 0.5;
  return model;
}

/// The first layer looks at everything, the second at three positions; angles are YaRN's.
ModelSpec windowed_qwen2() {
  ModelSpec model = small_model(ModelFamily::qwen2, false);
  model.attention_window = 3;
  model.full_layers = {0};
  model.max_positions = 7;
  model.rope = {
      .kind = RopeKind::yarn, .factor = 4, .original_positions = 40, .attention_factor = 1.2};
  return model;
}

/// The second layer's q and k are not rotated.
ModelSpec half_rotated_smollm3() {
  ModelSpec model = small_model(ModelFamily::smollm3, true);
  model.unrotated_layers = {1};
  return model;
}

ModelSpec granite_with_multipliers() {
  ModelSpec model = small_model(ModelFamily::granite, true);
  model.architecture.embedding_multiplier = 3;
  model.architecture.residual_multiplier = 0.4;
  model.architecture.attention_multiplier = 0.25;
  model.architecture.logits_scaling = 2;
  return model;
}

/// Gemma whose caps bend what they are given; the first layer has a window.
ModelSpec small_gemma(ModelFamily family) {
  ModelSpec model = small_model(family, true);
  model.attention_window = 3;
  model.full_layers = {1};
  model.max_positions = 7;
  model.architecture.attention_multiplier = 0.3;
  model.architecture.logits_softcap = 1.5;
  if (family == ModelFamily::gemma2) model.architecture.attention_softcap = 0.5;
  if (family == ModelFamily::gemma3_text) model.rope_local_theta = 50;
  return model;
}

struct Case {
  std::string name;
  ModelSpec model;
  Recompute recompute;
};

/// One step of a model on one rank: parameters before it, its gradients, its loss.
class GradientTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    model_ = GetParam().model;
    TrainingConfig config;
    config.micro_batch = 2;
    config.accumulation_steps = 3;
    config.sequence_length = 7;
    config.recompute = GetParam().recompute;
    CpuDevice device(64 << 20, 1);
    test::Rendezvous rendezvous(1);
    test::ThreadGroup group(rendezvous, 0, 1);
    const StepPlan plan = build_step_plan(model_, config, 1, 0, CpuWorkspaces(device.kernels()));
    Executor executor(plan, device, group, fixed_seed);
    executor.initialize();
    parameters_ = values(plan, executor, "parameters");
    loss_ = executor.step(0).loss;
    gradients_ = values(plan, executor, "gradients");
    samples_ = global_batch(config, 1);
    positions_ = config.sequence_length;
  }

  [[nodiscard]] std::vector<double> values(const StepPlan& plan, const Executor& executor,
                                           std::string_view name) const {
    for (std::size_t id = 0; id < plan.tensors.size(); ++id) {
      if (plan.tensors[id].name != name || !plan.tensors[id].persistent) continue;
      const auto* begin = static_cast<const float*>(executor.address(static_cast<TensorId>(id)));
      return {begin, begin + ParameterTable(model_).total_elements()};
    }
    ADD_FAILURE() << "no tensor " << name;
    return {};
  }

  /// Mean over the step's samples.
  [[nodiscard]] double reference_loss(const std::vector<double>& parameters) const {
    const test::ReferenceModel reference(model_);
    double sum = 0;
    for (std::int64_t sample = 0; sample < samples_; ++sample) {
      std::vector<std::int32_t> tokens;
      for (std::int64_t position = 0; position <= positions_; ++position)
        tokens.push_back(reference_token(fixed_seed, 0, sample, position, model_.vocab_size));
      std::vector<std::int32_t> targets(tokens.begin() + 1, tokens.end());
      tokens.pop_back();
      if (model_.architecture.objective == Objective::masked_token) mask(sample, tokens, targets);
      sum += reference.loss(parameters, tokens, targets);
    }
    return sum / static_cast<double>(samples_);
  }

  void mask(std::int64_t sample, std::vector<std::int32_t>& tokens,
            std::vector<std::int32_t>& targets) const {
    targets.assign(tokens.size(), -1);
    const std::int64_t count = targets_per_sequence(model_, positions_);
    for (std::int64_t number = 0; number < count; ++number) {
      const auto position = static_cast<std::size_t>(
          reference_masked_position(fixed_seed, 0, sample, number, count, positions_));
      targets[position] = tokens[position];
      tokens[position] = static_cast<std::int32_t>(model_.vocab_size - 1);
    }
  }

  /// The loss's slope along a direction.
  [[nodiscard]] double slope(const std::vector<double>& direction) const {
    // So small for ReLU that no input crosses its kink on the way.
    const double h = model_.architecture.activation == Activation::relu ? 1e-8 : 1e-6;
    std::vector<double> before = parameters_;
    std::vector<double> after = parameters_;
    for (std::size_t i = 0; i < direction.size(); ++i) {
      before[i] -= h * direction[i];
      after[i] += h * direction[i];
    }
    return (reference_loss(after) - reference_loss(before)) / (2 * h);
  }

  ModelSpec model_;
  std::vector<double> parameters_, gradients_;
  double loss_ = 0;
  std::int64_t samples_ = 0, positions_ = 0;
};

TEST_P(GradientTest, LossIsTheReferences) {
  const double reference = reference_loss(parameters_);
  EXPECT_NEAR(loss_, reference, 1e-6 * reference);
}

TEST_P(GradientTest, EveryTensorsGradientIsTheSlopeOfTheLoss) {
  const ParameterTable table(model_);
  for (const Parameter& parameter : table.all()) {
    const auto first = static_cast<std::size_t>(parameter.offset);
    const auto count = static_cast<std::size_t>(parameter.elements());
    double largest = 0;
    for (std::size_t i = first; i < first + count; ++i)
      largest = std::max(largest, std::abs(gradients_[i]));
    for (std::size_t i = first; i < first + count; i += 1 + count / 7) {
      std::vector<double> direction(parameters_.size(), 0.0);
      direction[i] = 1;
      EXPECT_NEAR(gradients_[i], slope(direction), 1e-5 * largest + 1e-8)
          << parameter.name << " element " << i - first;
    }
  }
}

TEST_P(GradientTest, AllGradientsTogetherAreTheSlopeAlongRandomDirections) {
  for (std::uint64_t number = 0; number < 4; ++number) {
    std::vector<double> direction(parameters_.size());
    double expected = 0;
    double square = 0;
    for (std::size_t i = 0; i < direction.size(); ++i) {
      direction[i] = kernels::counter_hash(99, number, i) % 2 == 0 ? 1 : -1;
      expected += direction[i] * gradients_[i];
      square += gradients_[i] * gradients_[i];
    }
    EXPECT_NEAR(expected, slope(direction), 1e-5 * std::sqrt(square));
  }
}

std::vector<Case> cases() {
  using enum ModelFamily;
  std::vector<Case> result{{"gpt2_untied", small_model(gpt2, false), Recompute::none},
                           {"llama_tied", small_model(llama, true), Recompute::none},
                           {"bert_untied", small_model(bert, false), Recompute::none}};
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::block}) {
    const auto add = [&](const std::string& name, const ModelSpec& model) {
      result.push_back({name + "_" + std::string(to_text(recompute)), model, recompute});
    };
    add("gpt2", small_model(gpt2, true));
    add("llama", small_model(llama, false));
    add("biased_llama", biased_llama());
    add("qwen2", small_model(qwen2, true));
    add("qwen3", small_model(qwen3, false));
    add("opt", small_model(opt, true));
    add("gpt_neox", small_model(gpt_neox, false));
    add("sequential_gpt_neox", sequential_gpt_neox());
    add("windowed_qwen2", windowed_qwen2());
    add("bert", small_model(bert, true));
    add("olmo2", small_model(olmo2, false));
    add("smollm3", half_rotated_smollm3());
    add("granite", granite_with_multipliers());
    add("gemma2", small_gemma(gemma2));
    add("gemma3_text", small_gemma(gemma3_text));
    add("falcon", small_falcon(true));
    add("falcon_two_norms", small_falcon(false));
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Models, GradientTest, testing::ValuesIn(cases()),
                         [](const auto& test_case) { return test_case.param.name; });

}  // namespace
}  // namespace dstune
