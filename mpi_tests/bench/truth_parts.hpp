#pragma once
/// The parts that made truths have in common: draws, and a machine's step by a formula. Local.

#include <cmath>
#include <cstdint>
#include <numbers>
#include <optional>
#include <random>
#include <vector>

#include "dstune/core/experiment.hpp"
#include "simulated_search.hpp"

namespace dstune::bench {

inline constexpr int usual_ranks = 4;
inline constexpr double usual_share = (usual_ranks - 1.0) / usual_ranks;
/// No prediction is better: of a stage, and of a member.
inline constexpr double stage_error = 0.02, own_error = 0.01;

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

/// The ranks that run a step, and by which factors their parts of it take longer.
struct Group {
  int ranks = usual_ranks;
  double computing = 1, network = 1;
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

  [[nodiscard]] double update_of(const TrainingConfig& config, int ranks = usual_ranks) const {
    const double share = config.zero_stage == 0 ? 1 : 1.0 / ranks;
    return update_s * share * (is_optimizer_offloaded(config) ? offload : 1);
  }
  [[nodiscard]] double step_s(const TrainingConfig& config, const Group& group = {}) const {
    constexpr double parameters = 5e7;
    const auto micro_steps = static_cast<double>(config.accumulation_steps);
    const auto samples = static_cast<double>(config.micro_batch);
    const double again = config.recompute == Recompute::none ? 1 : recompute;
    const double reductions = config.zero_stage >= 2 ? micro_steps : 1;
    const double gathers = config.zero_stage == 3 ? 2 * micro_steps : config.zero_stage > 0 ? 1 : 0;
    const double buckets = std::ceil(parameters / static_cast<double>(config.reduce_bucket_size));
    const double calls_of_gather = config.stage3_prefetch_bucket_size > 0 ? 4 : 24;
    const double others = group.ranks - 1;
    // A ring sends (n − 1) / n of the bytes, in n − 1 rounds.
    const double network_s =
        gradients_s * (reductions + gathers / 2) * (others / group.ranks / usual_share) +
        call_s * (reductions * buckets + (config.zero_stage == 3 ? gathers * calls_of_gather : 1)) *
            (others / (usual_ranks - 1));
    return micro_steps * (micro_step_s + samples * sample_s * again) * group.computing +
           network_s * group.network * (config.overlap_comm ? 1 - hidden : 1) +
           update_of(config, group.ranks);
  }
};

/// A member as it is, and as it is predicted.
struct MadeMember {
  TrainingConfig config;
  GroupShape shape{.num_gpus = usual_ranks, .num_nodes = 1};
  double step_s = 0;
  double throughput = 0;
  std::optional<double> predicted_throughput{};
  std::int64_t memory_bytes = 0;
};
[[nodiscard]] SimulatedSpace space_of(const std::vector<MadeMember>& members);

/// By ZeRO stage, offload, micro-batch and recompute.
[[nodiscard]] std::int64_t memory_bytes(const TrainingConfig& config, int ranks = usual_ranks);

}  // namespace dstune::bench
