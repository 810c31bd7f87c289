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

namespace dstune::bench {
namespace {

constexpr auto truth_kinds =
    numbered({"stages", "silent_knob", "saturation", "interaction", "cliff", "heavy_tails", "drift",
              "jumps", "offload", "no_information", "smooth", "other_machine"});

constexpr int ranks = 4;
constexpr std::size_t min_members = 100, max_members = 400;
/// Of the logarithm of a run's time, and of a step's beside it.
constexpr double run_to_run = 0.015, step_to_step = 0.02;
constexpr int warmup_steps = 3, timed_steps = 20;
/// No prediction is better: of a stage, and of a member.
constexpr double stage_error = 0.02, own_error = 0.01;

/// Numbers of its own making: the library's distributions differ between machines.
class Draw {
 public:
  explicit Draw(std::mt19937_64& bits) : bits_(bits) {}
  double uniform(double low = 0, double high = 1) {
    return low + (high - low) * static_cast<double>(bits_() >> 11) * 0x1p-53;
  }
  double log_uniform(double low, double high) {
    return std::exp(uniform(std::log(low), std::log(high)));
  }
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }
  /// Student's t of two degrees of freedom.
  double heavy() { return normal() / std::sqrt(-std::log(1 - uniform())); }
  bool chance(double probability) { return uniform() < probability; }
  template <class Value>
  Value one_of(const std::vector<Value>& values) {
    return values[bits_() % values.size()];
  }

 private:
  std::mt19937_64& bits_;
};

/// What a machine takes for the parts of a step, in seconds.
struct Machine {
  double micro_step_s, sample_s, recompute, gradients_s, call_s, hidden, update_s, offload;

  explicit Machine(Draw& draw)
      : micro_step_s(draw.log_uniform(2e-3, 2e-2)),
        sample_s(draw.log_uniform(4e-3, 1.6e-2)),
        recompute(draw.uniform(1.2, 1.4)),
        gradients_s(draw.log_uniform(5e-3, 8e-2)),
        call_s(draw.log_uniform(5e-5, 2e-3)),
        hidden(draw.uniform(0.2, 0.8)),
        update_s(draw.log_uniform(2e-3, 3e-2)),
        offload(draw.uniform(2, 8)) {}

  [[nodiscard]] double update_of(const TrainingConfig& config) const {
    const double share = config.zero_stage == 0 ? 1 : 1.0 / ranks;
    return update_s * share * (is_optimizer_offloaded(config) ? offload : 1);
  }
  [[nodiscard]] double step_s(const TrainingConfig& config) const {
    constexpr double parameters = 5e7;
    const auto micro_steps = static_cast<double>(config.accumulation_steps);
    const auto samples = static_cast<double>(config.micro_batch);
    const double again = config.recompute == Recompute::none ? 1 : recompute;
    const double reductions = config.zero_stage >= 2 ? micro_steps : 1;
    const double gathers = config.zero_stage == 3 ? 2 * micro_steps : config.zero_stage > 0 ? 1 : 0;
    const double buckets = std::ceil(parameters / static_cast<double>(config.reduce_bucket_size));
    const double calls_of_gather = config.stage3_prefetch_bucket_size > 0 ? 4 : 24;
    const double network_s =
        gradients_s * (reductions + gathers / 2) +
        call_s * (reductions * buckets + (config.zero_stage == 3 ? gathers * calls_of_gather : 1));
    return micro_steps * (micro_step_s + samples * sample_s * again) +
           network_s * (config.overlap_comm ? 1 - hidden : 1) + update_of(config);
  }
};

std::int64_t memory_bytes(const TrainingConfig& config) {
  constexpr std::array<double, 4> states = {16, 7, 5.5, 4};
  const double of_states = states[static_cast<std::size_t>(config.zero_stage)] *
                           (is_optimizer_offloaded(config) ? 0.6 : 1.0);
  const double of_samples =
      static_cast<double>(config.micro_batch) * (config.recompute == Recompute::none ? 3.0 : 1.0);
  return static_cast<std::int64_t>(1e8 * (of_states + of_samples));
}

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

double samples_of(const TrainingConfig& config) {
  return static_cast<double>(global_batch(config, ranks));
}

SimulatedSpace draw_space(TruthKind kind, Draw& draw) {
  const std::vector<TrainingConfig> configs = draw_members(kind, draw);
  const Machine predicted(draw);
  const Machine real = kind == TruthKind::other_machine ? Machine(draw) : predicted;
  const auto error = draw_error(kind, predicted, draw);
  SimulatedSpace simulated;
  simulated.tuning.metric = Metric::throughput;
  std::vector<double> predictions;
  std::vector<double> steps_s;
  for (const TrainingConfig& config : configs) {
    const double own =
        kind == TruthKind::heavy_tails ? 0.04 * draw.heavy() : own_error * draw.normal();
    // Not even a heavy tail takes a day for a step.
    steps_s.push_back(real.step_s(config) * std::exp(error(config) + std::clamp(own, -0.4, 1.5)));
    predictions.push_back(samples_of(config) / predicted.step_s(config));
    simulated.truth.push_back(samples_of(config) / steps_s.back());
  }
  if (kind == TruthKind::no_information)
    for (std::size_t left = predictions.size(); left > 1; --left)
      std::swap(predictions[left - 1],
                predictions[static_cast<std::size_t>(draw.uniform() * static_cast<double>(left))]);
  for (std::size_t index = 0; index < configs.size(); ++index) {
    PlannedMember& member = simulated.space.members.emplace_back();
    PlannedExperiment& planned = member.planned;
    planned.experiment.name = fmt::format("{}_z{}", index, configs[index].zero_stage);
    planned.experiment.shape = {.num_gpus = ranks, .num_nodes = 1};
    planned.experiment.config = configs[index];
    planned.predicted.throughput = predictions[index];
    planned.predicted.peak_memory_bytes = memory_bytes(configs[index]);
  }
  simulated.space.total = simulated.space.planned = configs.size();
  simulated.space.baseline = 0;
  const double grid_s =
      (warmup_steps + timed_steps) * std::accumulate(steps_s.begin(), steps_s.end(), 0.0);
  simulated.disturbance = draw_disturbance(kind, grid_s, draw);
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

std::size_t within(const SimulatedSpace& simulated, double share) {
  const double least = (1 - share) * simulated.best_truth();
  return static_cast<std::size_t>(
      std::ranges::count_if(simulated.truth, [&](double each) { return each >= least; }));
}

}  // namespace

const EnumTexts& texts_of(TruthKind) {
  static constexpr EnumTexts texts{truth_kinds};
  return texts;
}

SimulatedSpace make_truth(TruthKind kind, std::uint64_t seed) {
  std::mt19937_64 bits(seed * num_truth_kinds + static_cast<std::uint64_t>(kind));
  Draw draw(bits);
  for (;;) {
    SimulatedSpace simulated = draw_space(kind, draw);
    const bool is_hard = 20 * within(simulated, 0.01) <= simulated.truth.size();
    if (is_hard && (kind != TruthKind::no_information || within(simulated, 0.05) >= 8))
      return simulated;
  }
}

}  // namespace dstune::bench
