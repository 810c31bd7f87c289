#include "effect.hpp"

#include <array>
#include <functional>
#include <vector>

#include "dstune/core/knobs.hpp"

namespace dstune {

namespace {

struct Reset {
  const Knob* knob;
  KnobValue value;
};

/// The default, or for a knob without one any value of its type: which one does not matter where it
/// does not act.
KnobValue any_value(const Knob& knob) {
  const auto fallback = json::Value::parse(knob.fallback);
  switch (knob.type) {
    case KnobType::boolean:
      return fallback.is_boolean() && fallback.get<bool>();
    case KnobType::integer:
      return fallback.is_number() ? fallback.get<std::int64_t>() : std::int64_t{0};
    case KnobType::number:
      return fallback.is_number() ? fallback.get<double>() : 0.0;
    case KnobType::text:
      return fallback.is_string() ? fallback.get<std::string>() : std::string();
    default:
      return {};
  }
}

std::vector<Reset> resets_at(int stage) {
  std::vector<Reset> resets;
  for (const auto& knob : knobs()) {
    if (knob.apply != nullptr && !knob.acts_at(stage)) resets.push_back({&knob, any_value(knob)});
  }
  return resets;
}

}  // namespace

TrainingConfig effective_config(const TrainingConfig& config) {
  static const std::array<std::vector<Reset>, 4> resets = {resets_at(0), resets_at(1), resets_at(2),
                                                           resets_at(3)};
  TrainingConfig effective = config;
  if (config.zero_stage < 0 || config.zero_stage > 3) return effective;
  for (const auto& reset : resets[config.zero_stage]) reset.knob->apply(effective, reset.value);
  return effective;
}

std::size_t hash_of(const TrainingConfig& config, const GroupShape& shape) {
  std::size_t hash = 0;
  const auto add = [&](auto value) {
    hash = hash * 1099511628211U + std::hash<decltype(value)>()(value) + (hash >> 29);
  };
  add(config.zero_stage);
  add(config.micro_batch);
  add(config.accumulation_steps);
  add(config.reduce_bucket_size);
  add(config.allgather_bucket_size);
  add(config.gradient_clipping);
  add(config.optimizer.learning_rate);
  add(config.optimizer.weight_decay);
  add((config.overlap_comm ? 1 : 0) | (config.reduce_scatter ? 2 : 0) |
      (config.contiguous_gradients ? 4 : 0) | (config.use_multi_rank_bucket_allreduce ? 8 : 0) |
      (config.recompute == Recompute::none ? 16 : 0));
  add(shape.num_gpus);
  add(shape.num_nodes);
  return hash;
}

}  // namespace dstune
