#include "group_truths.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "dstune/core/experiment.hpp"

namespace dstune::bench {
namespace {

constexpr std::size_t min_members = 200, max_members = 960;
/// Of the factor that each pair of a stage and a group size has.
constexpr double pair_error = 0.15;

using Shapes = std::vector<GroupShape>;
using Configs = std::vector<TrainingConfig>;

Shapes shapes_of(const std::vector<int>& sizes, const std::vector<int>& nodes) {
  Shapes shapes;
  for (const int number : nodes)
    for (const int size : sizes) shapes.push_back({.num_gpus = size, .num_nodes = number});
  return shapes;
}

Shapes draw_shapes(TruthKind kind, Draw& draw) {
  using Sizes = std::vector<int>;
  if (kind == TruthKind::nodes)
    return shapes_of(draw.one_of<Sizes>({{2, 4}, {4}, {1, 2, 4}}), {1, 2});
  return shapes_of(draw.one_of<Sizes>({{1, 2, 4}, {1, 2, 4, 8}}), {1});
}

/// One more value of each, for all.
template <class Change>
Configs times(const Configs& configs, const Change& change) {
  Configs result;
  for (const TrainingConfig& config : configs) change(config, result);
  return result;
}

template <class Value, class Member>
Configs with_each(const Configs& configs, Member member, const std::vector<Value>& values) {
  return times(configs, [&](TrainingConfig config, Configs& result) {
    for (const Value& value : values) {
      config.*member = value;
      result.push_back(config);
    }
  });
}

/// Of one group; what has no effect at stage 0 has one value there.
Configs draw_configs(Draw& draw) {
  using Sizes = std::vector<std::int64_t>;
  Configs configs(1);
  configs = with_each(configs, &TrainingConfig::zero_stage,
                      draw.one_of<std::vector<int>>({{0, 1, 2, 3}, {0, 1, 3}, {1, 2, 3}}));
  configs = with_each(configs, &TrainingConfig::micro_batch,
                      draw.one_of<Sizes>({{1, 2, 4, 8}, {1, 2, 4, 8, 16}, {1, 2, 3, 4, 6, 8}}));
  configs = with_each(configs, &TrainingConfig::accumulation_steps,
                      draw.one_of<Sizes>({{1}, {1, 4}, {1, 2, 4}}));
  configs =
      with_each(configs, &TrainingConfig::reduce_bucket_size,
                draw.one_of<Sizes>({{500'000'000, 5'000'000}, {500'000'000, 5'000'000, 500'000}}));
  if (draw.chance(0.7))
    configs = with_each(configs, &TrainingConfig::recompute,
                        std::vector{Recompute::none, Recompute::block});
  if (draw.chance(0.5))
    configs = with_each(configs, &TrainingConfig::overlap_comm, std::vector<bool>{false, true});
  if (draw.chance(0.4))
    configs = times(configs, [](TrainingConfig config, Configs& result) {
      for (const OffloadDevice device : {OffloadDevice::none, OffloadDevice::cpu}) {
        if (device != OffloadDevice::none && config.zero_stage == 0) continue;
        config.offload_optimizer = device;
        result.push_back(config);
      }
    });
  return configs;
}

/// How groups change a step, as it is or as it is predicted.
using GroupOf = std::function<Group(const TrainingConfig&, const GroupShape&)>;
struct Groups {
  GroupOf real, predicted;
  /// How much longer a step takes than that says; a logarithm.
  std::function<double(const TrainingConfig&, const GroupShape&)> error;
};

/// Ranks of a node share its memory, so that each of several is slower than one alone.
GroupOf sharing(double contention) {
  return [=](const TrainingConfig&, const GroupShape& shape) {
    return Group{.ranks = shape.size(), .computing = 1 + contention * (shape.num_gpus - 1)};
  };
}

double no_error(const TrainingConfig&, const GroupShape&) {
  return 0;
}

/// On one rank all stages are the same step.
Groups with_pairs(Draw& draw) {
  const GroupOf group = sharing(draw.uniform(0.2, 0.9));
  std::map<std::pair<int, int>, double> of_pair;
  for (const int stage : {0, 1, 2, 3})
    for (const int size : {2, 4, 8}) of_pair[{stage, size}] = draw.normal() * pair_error;
  return {group, group, [=](const TrainingConfig& config, const GroupShape& shape) {
            return shape.size() == 1 ? 0.0 : of_pair.at({config.zero_stage, shape.num_gpus});
          }};
}

Groups with_slow_link(Draw& draw) {
  const GroupOf predicted = sharing(draw.uniform(0.05, 0.4));
  const double slower = draw.log_uniform(2, 30);
  const GroupOf real = [=](const TrainingConfig& config, const GroupShape& shape) {
    Group group = predicted(config, shape);
    if (shape.num_nodes > 1) group.network *= slower;
    return group;
  };
  return {real, predicted, no_error};
}

/// Kernels by a rank's samples, memory by a node's, the network by its messages.
Groups with_tiers(Draw& draw) {
  const GroupOf predicted = sharing(draw.uniform(0.1, 0.6));
  const double few_samples = draw.log_uniform(1.2, 5), few_cost = draw.uniform(0.1, 0.5);
  const double most_of_node = draw.log_uniform(6, 40), most_cost = draw.uniform(0.15, 0.6);
  const double small_message = draw.log_uniform(1e6, 1e8), small_cost = draw.uniform(0.3, 3);
  const GroupOf real = [=](const TrainingConfig& config, const GroupShape& shape) {
    Group group = predicted(config, shape);
    const auto samples = static_cast<double>(config.micro_batch);
    if (samples < few_samples) group.computing *= 1 + few_cost;
    if (samples * shape.num_gpus > most_of_node) group.computing *= 1 + most_cost;
    const double message = static_cast<double>(config.reduce_bucket_size) / shape.size();
    if (message < small_message) group.network *= 1 + small_cost;
    return group;
  };
  return {real, predicted, no_error};
}

TruthKind predicted_kind(TruthKind kind) {
  switch (kind) {
    case TruthKind::group_sizes_unpredicted:
      return TruthKind::group_sizes;
    case TruthKind::nodes_unpredicted:
      return TruthKind::nodes;
    case TruthKind::tiers_unpredicted:
      return TruthKind::tiers;
    default:
      return kind;
  }
}

}  // namespace

SimulatedSpace draw_groups(TruthKind kind, Draw& draw) {
  const TruthKind like = predicted_kind(kind);
  Shapes shapes;
  Configs configs;
  do {
    shapes = draw_shapes(like, draw);
    configs = draw_configs(draw);
  } while (shapes.size() * configs.size() < min_members ||
           shapes.size() * configs.size() > max_members);
  const Machine machine(draw);
  std::array<double, 4> of_stage{};
  for (double& each : of_stage) each = draw.normal() * stage_error;
  const Groups groups = like == TruthKind::group_sizes ? with_pairs(draw)
                        : like == TruthKind::nodes     ? with_slow_link(draw)
                                                       : with_tiers(draw);
  std::vector<MadeMember> members;
  for (const GroupShape& shape : shapes)
    for (const TrainingConfig& config : configs) {
      const double of_several =
          of_stage[static_cast<std::size_t>(config.zero_stage)] + own_error * draw.normal();
      const auto samples = static_cast<double>(global_batch(config, shape.size()));
      MadeMember& member = members.emplace_back();
      member.config = config;
      member.shape = shape;
      member.step_s = machine.step_s(config, groups.real(config, shape)) *
                      std::exp(groups.error(config, shape) + (shape.size() > 1 ? of_several : 0));
      member.throughput = samples / member.step_s;
      if (has_information(kind))
        member.predicted_throughput =
            samples / machine.step_s(config, groups.predicted(config, shape));
      member.memory_bytes = memory_bytes(config, shape.size());
    }
  return space_of(members);
}

}  // namespace dstune::bench
