// How long race takes to decide what runs next, in a space of 102,400 members with five knobs:
//   decision_bench [experiments, 40 unless given]
// What is predicted of a member, and what is measured, follow from formulas that differ by up to a
// fifth. Prints processor time: the mean and the most of a decision (observe() and next()), and
// what the tuner takes before the first.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <random>

#include "dstune/search/tuner.hpp"

namespace dstune::bench {
namespace {

constexpr double ms_per_s = 1e3;

double processor_ms() {
  return ms_per_s * static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

/// Samples a second; the larger the share, the more buckets and recompute cost.
double throughput(const TrainingConfig& config, double share) {
  const auto micro = static_cast<double>(config.micro_batch);
  const auto steps = static_cast<double>(config.accumulation_steps);
  const double compute = 0.01 * micro * (config.recompute == Recompute::none ? 1 : 1.2 + share);
  const double small_buckets = share * 1e6 / static_cast<double>(config.reduce_bucket_size);
  const double traffic = 0.03 * (config.zero_stage == 3 ? 1.5 * steps : 1) * (1 + small_buckets);
  return 4 * micro * steps / (steps * (compute + 0.02) + traffic);
}

/// 4 stages, 32 micro-batches, 10 accumulations, 2 kinds of recompute, 40 bucket sizes.
PlannedSpace space_of_many() {
  constexpr double predicted_share = 0.1;
  PlannedSpace space;
  for (int stage = 0; stage < 4; ++stage)
    for (std::int64_t micro_batch = 1; micro_batch <= 32; ++micro_batch)
      for (std::int64_t accumulation = 1; accumulation <= 10; ++accumulation)
        for (const auto recompute : {Recompute::none, Recompute::block})
          for (std::int64_t bucket = 1; bucket <= 40; ++bucket) {
            PlannedMember& member = space.members.emplace_back();
            Experiment& experiment = member.planned.experiment;
            experiment.shape = {4, 1};
            experiment.config.zero_stage = stage;
            experiment.config.micro_batch = micro_batch;
            experiment.config.accumulation_steps = accumulation;
            experiment.config.recompute = recompute;
            experiment.config.reduce_bucket_size = bucket * 10'000'000;
            Prediction& predicted = member.planned.predicted;
            predicted.throughput = throughput(experiment.config, predicted_share);
            predicted.peak_memory_bytes =
                micro_batch * (recompute == Recompute::none ? 1000 : 300) + 5000 / (stage + 1);
          }
  space.total = space.planned = space.members.size();
  return space;
}

}  // namespace
}  // namespace dstune::bench

int main(int argc, char** argv) {
  using namespace dstune;
  using namespace dstune::bench;
  constexpr double true_share = 0.3, noise = 0.01;
  const int num_experiments = argc > 1 ? std::atoi(argv[1]) : 40;
  const PlannedSpace space = space_of_many();
  std::mt19937_64 random(1);
  std::normal_distribution<double> normal;

  double begun_ms = processor_ms();
  const auto tuner = make_tuner("race", space, {});
  std::printf("%zu members; %.1f ms before the first experiment\n", space.members.size(),
              processor_ms() - begun_ms);
  double sum_ms = 0, most_ms = 0;
  int count = 0;
  auto next = tuner->next();
  for (; next && count < num_experiments; ++count) {
    const double value = throughput(space.members[*next].planned.experiment.config, true_share) *
                         std::exp(noise * normal(random));
    begun_ms = processor_ms();
    tuner->observe(*next, {Status::ok, MetricValue{value, value * 0.98, value * 1.02}});
    next = tuner->next();
    const double taken_ms = processor_ms() - begun_ms;
    sum_ms += taken_ms;
    most_ms = std::max(most_ms, taken_ms);
  }
  std::printf("%d decisions: %.1f ms on average, %.1f ms at most\n", count, sum_ms / count,
              most_ms);
  return 0;
}
