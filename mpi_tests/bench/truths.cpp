#include "truths.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numbers>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "group_truths.hpp"
#include "truth_parts.hpp"

namespace dstune::bench {
namespace {

constexpr auto truth_kinds = numbered(
    {"stages", "silent_knob", "saturation", "interaction", "cliff", "heavy_tails", "drift", "jumps",
     "offload", "no_information", "smooth", "other_machine", "group_sizes", "nodes", "tiers",
     "group_sizes_unpredicted", "nodes_unpredicted", "tiers_unpredicted"});
/// Seeds of the first kinds were counted so, before there were others.
constexpr std::uint64_t num_first_kinds = 12;

constexpr std::size_t min_members = 100, max_members = 400;
/// Of the logarithm of a run's time, and of a step's beside it.
constexpr double run_to_run = 0.015, step_to_step = 0.02;
constexpr int warmup_steps = 3, timed_steps = 20;

/// Lists of candidates, whose product makes 100 to 400 members.
std::vector<TrainingConfig> draw_members(TruthKind kind, Draw& draw) {
  using Sizes = std::vector<std::int64_t>;
  for (;;) {
    const auto stages = draw.one_of<std::vector<int>>({{0, 1, 2, 3}, {0, 1, 3}, {1, 2, 3}});
    const auto micro_batches = draw.one_of<Sizes>(
        {{1, 2, 4, 8}, {1, 2, 4, 8, 16}, {2, 4, 6, 8, 12, 16}, {1, 2, 3, 4, 6, 8}});
    const auto accumulations = draw.one_of<Sizes>({{1}, {1, 4}, {1, 2, 4}});
    const auto buckets = draw.one_of<Sizes>(
        {{500'000'000, 5'000'000}, {500'000'000, 5'000'000, 500'000}, {50'000'000}});
    const auto recomputes = draw.one_of<std::vector<Recompute>>(
        {{Recompute::none}, {Recompute::none, Recompute::block}});
    const bool has_offload = kind == TruthKind::offload || draw.chance(0.5);
    const bool has_overlap = draw.chance(0.5);
    const bool has_prefetch = draw.chance(0.5);
    const bool has_silent = kind == TruthKind::silent_knob || draw.chance(0.5);
    if (kind == TruthKind::interaction && buckets.size() < 2) continue;
    std::vector<TrainingConfig> members;
    const auto add = [&](TrainingConfig config) {
      for (const bool overlap : {false, true}) {
        if (overlap && !has_overlap) continue;
        config.overlap_comm = overlap;
        for (const bool contiguous : {true, false}) {
          if (!contiguous && (!has_silent || config.zero_stage == 0)) continue;
          config.contiguous_gradients = contiguous;
          for (const bool offloaded : {false, true}) {
            if (offloaded && (!has_offload || config.zero_stage == 0)) continue;
            config.offload_optimizer = offloaded ? OffloadDevice::cpu : OffloadDevice::none;
            for (const bool prefetches : {true, false}) {
              if (!prefetches && (!has_prefetch || config.zero_stage < 3)) continue;
              config.stage3_prefetch_bucket_size = prefetches ? 50'000'000 : 0;
              members.push_back(config);
            }
          }
        }
      }
    };
    TrainingConfig config;
    for (const int stage : stages)
      for (const std::int64_t micro_batch : micro_batches)
        for (const std::int64_t accumulation : accumulations)
          for (const std::int64_t bucket : buckets)
            for (const Recompute recompute : recomputes) {
              config.zero_stage = stage;
              config.micro_batch = micro_batch;
              config.accumulation_steps = accumulation;
              config.reduce_bucket_size = bucket;
              config.recompute = recompute;
              add(config);
            }
    if (members.size() >= min_members && members.size() <= max_members) return members;
  }
}

/// How much longer a member's step takes than is predicted; a logarithm.
std::function<double(const TrainingConfig&)> draw_error(TruthKind kind, const Machine& machine,
                                                        Draw& draw) {
  std::array<double, 4> of_stage{};
  const bool has_stages = kind == TruthKind::drift || kind == TruthKind::jumps;
  for (double& each : of_stage)
    each = draw.normal() * (kind == TruthKind::stages ? 0.25 : has_stages ? 0.1 : stage_error);
  const auto stages = [=](const TrainingConfig& config) {
    return of_stage[static_cast<std::size_t>(config.zero_stage)];
  };
  switch (kind) {
    case TruthKind::silent_knob: {
      const double factor = draw.uniform(0.12, 0.33) * (draw.chance(0.5) ? 1 : -1);
      return [=](const TrainingConfig& config) {
        return stages(config) + (config.contiguous_gradients ? 0 : factor);
      };
    }
    case TruthKind::saturation: {
      const double most = draw.log_uniform(2, 8);
      const double steepness = draw.uniform(0.1, 0.4);
      return [=](const TrainingConfig& config) {
        const double past = std::log2(static_cast<double>(config.micro_batch) / most);
        return stages(config) + (past > 0 ? steepness * past : 0);
      };
    }
    case TruthKind::interaction: {
      std::map<std::pair<int, std::int64_t>, double> of_pair;
      for (const int stage : {0, 1, 2, 3})
        for (const std::int64_t bucket : {500'000'000, 50'000'000, 5'000'000, 500'000})
          of_pair[{stage, bucket}] = draw.normal() * 0.2;
      return [=](const TrainingConfig& config) {
        return stages(config) + of_pair.at({config.zero_stage, config.reduce_bucket_size});
      };
    }
    case TruthKind::cliff: {
      const double limit = draw.log_uniform(8e8, 3e9);
      const double factor = draw.uniform(0.25, 0.7);
      return [=](const TrainingConfig& config) {
        return stages(config) + (static_cast<double>(memory_bytes(config)) > limit ? factor : 0);
      };
    }
    case TruthKind::offload: {
      const double factor = draw.log_uniform(0.15, 6);
      return [=](const TrainingConfig& config) {
        if (!is_optimizer_offloaded(config)) return stages(config);
        const double predicted_s = machine.step_s(config);
        const double update_s = machine.update_of(config);
        return stages(config) + std::log((predicted_s + update_s * (factor - 1)) / predicted_s);
      };
    }
    case TruthKind::smooth: {
      struct Wave {
        std::array<double, 6> slopes{};
        double phase = 0;
      };
      std::vector<Wave> waves(12);
      for (Wave& wave : waves) {
        for (double& slope : wave.slopes) slope = draw.normal() * 1.5;
        wave.phase = draw.uniform(0, 2 * std::numbers::pi);
      }
      return [=](const TrainingConfig& config) {
        const std::array<double, 6> knobs = {
            config.zero_stage / 3.0,
            std::log2(static_cast<double>(config.micro_batch)) / 4,
            std::log2(static_cast<double>(config.accumulation_steps)) / 2,
            std::log10(static_cast<double>(config.reduce_bucket_size)) / 3,
            config.recompute == Recompute::none ? 0.0 : 1.0,
            config.overlap_comm ? 1.0 : 0.0};
        double error = 0;
        for (const Wave& wave : waves)
          error += std::cos(wave.phase + std::inner_product(knobs.begin(), knobs.end(),
                                                            wave.slopes.begin(), 0.0));
        return stages(config) + 0.15 * error / std::sqrt(6.0);
      };
    }
    default:
      return stages;
  }
}

/// The machine's own: what a run that begins now takes longer; a logarithm.
std::function<double(double, std::mt19937_64&)> draw_disturbance(TruthKind kind, double grid_s,
                                                                 Draw& draw) {
  if (kind == TruthKind::drift) {
    const double period_s = grid_s * draw.uniform(0.03, 0.15);
    const double phase = draw.uniform(0, 2 * std::numbers::pi);
    return [=](double now_s, std::mt19937_64&) {
      return 0.06 * std::sin(phase + 2 * std::numbers::pi * now_s / period_s);
    };
  }
  if (kind == TruthKind::jumps)
    return [](double, std::mt19937_64& random) {
      return Draw(random).chance(0.25) ? std::log(1.15) : 0.0;
    };
  return {};
}

SimulatedSpace draw_space(TruthKind kind, Draw& draw) {
  const std::vector<TrainingConfig> configs = draw_members(kind, draw);
  const Machine predicted(draw);
  const Machine real = kind == TruthKind::other_machine ? Machine(draw) : predicted;
  const auto error = draw_error(kind, predicted, draw);
  std::vector<MadeMember> members;
  for (const TrainingConfig& config : configs) {
    const double own =
        kind == TruthKind::heavy_tails ? 0.04 * draw.heavy() : own_error * draw.normal();
    MadeMember& member = members.emplace_back();
    member.config = config;
    // Not even a heavy tail takes a day for a step.
    member.step_s = real.step_s(config) * std::exp(error(config) + std::clamp(own, -0.4, 1.5));
    const auto samples = static_cast<double>(global_batch(config, usual_ranks));
    member.throughput = samples / member.step_s;
    member.predicted_throughput = samples / predicted.step_s(config);
    member.memory_bytes = memory_bytes(config);
  }
  if (kind == TruthKind::no_information)
    for (std::size_t left = members.size(); left > 1; --left)
      std::swap(members[left - 1].predicted_throughput,
                members[static_cast<std::size_t>(draw.uniform() * static_cast<double>(left))]
                    .predicted_throughput);
  SimulatedSpace simulated = space_of(members);
  simulated.disturbance = draw_disturbance(kind, simulated.grid_s, draw);
  return simulated;
}

std::size_t within(const SimulatedSpace& simulated, double share) {
  const double least = (1 - share) * simulated.best_truth();
  return static_cast<std::size_t>(
      std::ranges::count_if(simulated.truth, [&](double each) { return each >= least; }));
}

/// Without predictions nothing leads to the best: several are to be near it.
constexpr std::size_t least_near = 8;

}  // namespace

std::int64_t memory_bytes(const TrainingConfig& config, int ranks) {
  constexpr std::array<double, 4> states = {16, 7, 5.5, 4};
  const double whole = states[0];
  const double of_stage = states[static_cast<std::size_t>(config.zero_stage)];
  // The states of four ranks are given; what is shared is so by fewer, or more.
  const double of_states =
      (of_stage + (whole - of_stage) / usual_share * (1.0 / ranks - 1.0 / usual_ranks)) *
      (is_optimizer_offloaded(config) ? 0.6 : 1.0);
  const double of_samples =
      static_cast<double>(config.micro_batch) * (config.recompute == Recompute::none ? 3.0 : 1.0);
  return static_cast<std::int64_t>(1e8 * (of_states + of_samples));
}

SimulatedSpace space_of(const std::vector<MadeMember>& members) {
  SimulatedSpace simulated;
  simulated.tuning.metric = Metric::throughput;
  std::vector<double> steps_s;
  for (const MadeMember& made : members) {
    PlannedExperiment& planned = simulated.space.members.emplace_back().planned;
    planned.experiment.name = fmt::format("{}_z{}", steps_s.size(), made.config.zero_stage);
    planned.experiment.shape = made.shape;
    planned.experiment.config = made.config;
    planned.predicted.throughput = made.predicted_throughput;
    planned.predicted.peak_memory_bytes = made.memory_bytes;
    simulated.truth.push_back(made.throughput);
    steps_s.push_back(made.step_s);
  }
  simulated.space.total = simulated.space.planned = members.size();
  simulated.space.baseline = 0;
  simulated.grid_s =
      (warmup_steps + timed_steps) * std::accumulate(steps_s.begin(), steps_s.end(), 0.0);
  simulated.run = [steps_s](std::size_t member, double slower_by, std::mt19937_64& random) {
    Draw of_run(random);
    const double longer = slower_by + run_to_run * of_run.normal();
    Measurement trial;
    trial.status = Status::ok;
    trial.warmup_steps = warmup_steps;
    for (int step = 0; step < warmup_steps + timed_steps; ++step)
      trial.step_times_s.push_back(steps_s[member] *
                                   std::exp(longer + step_to_step * of_run.normal()));
    return trial;
  };
  return simulated;
}

const EnumTexts& texts_of(TruthKind) {
  static constexpr EnumTexts texts{truth_kinds};
  return texts;
}

SimulatedSpace make_truth(TruthKind kind, std::uint64_t seed) {
  const bool is_of_groups = has_groups(kind);
  const auto number = static_cast<std::uint64_t>(kind);
  std::mt19937_64 bits(is_of_groups ? (seed << 8U) + number : seed * num_first_kinds + number);
  Draw draw(bits);
  const bool is_informed = has_information(kind);
  for (;;) {
    SimulatedSpace simulated = is_of_groups ? draw_groups(kind, draw) : draw_space(kind, draw);
    const bool is_hard = 20 * within(simulated, 0.01) <= simulated.truth.size();
    if (is_hard && (is_informed || within(simulated, 0.05) >= least_near)) return simulated;
  }
}

}  // namespace dstune::bench
