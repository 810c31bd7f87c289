// How long race takes to decide what runs next, in a space of 102,400 members with five knobs:
//   decision_bench [experiments, 40 unless given]
// What is predicted of a member, and what is measured, follow from formulas that differ by up to a
// fifth. Prints processor time: the mean and the most of a decision (observe() and next()), and
// what the tuner takes before the first. Then how long finals take to decide after a slice: with
// ten members that are nearly alike, and others that are slower.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "dstune/ranking/run_again.hpp"
#include "dstune/ranking/scoreboard.hpp"
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

/// Runs of members that differ in their steps' time and their noise.
class FinalsOfTen {
 public:
  explicit FinalsOfTen(std::size_t num_members, unsigned seed) : random_(seed) {
    std::vector<Row> rows(num_members);
    for (std::size_t member = 0; member < num_members; ++member) {
      Experiment& experiment = rows[member].planned.experiment;
      experiment.name = std::to_string(member);
      experiment.shape = {4, 1};
      experiment.config.micro_batch = 4;
      Record record;
      record.experiment = experiment;
      record.predicted.throughput = 16 / step_s(member) * std::exp(0.05 * normal_(random_));
      fill(member, record);
      rows[member].record = record;
    }
    scoreboard_.emplace(ScoreboardSetup{}, std::move(rows));
  }

  /// Finalists run in turns until so many runs are judged.
  void go_on_until(std::size_t num_runs) {
    for (scoreboard_->judge(); judged_runs() < num_runs; scoreboard_->judge()) {
      Repeat repeat;
      repeat.round = static_cast<int>(next_ / num_finalists) + 1;
      fill(next_ % num_finalists, repeat);
      scoreboard_->repeat(next_++ % num_finalists, repeat);
    }
  }

  /// Another slice has ended, and the next one is asked for.
  double decision_ms() {
    Repeat repeat;
    repeat.round = static_cast<int>(next_ / num_finalists) + 1;
    fill(next_ % num_finalists, repeat);
    scoreboard_->repeat(next_++ % num_finalists, repeat);
    RunAgainPolicy policy(*scoreboard_, {});
    const double begun_ms = processor_ms();
    (void)policy.next_round(1e6);
    return processor_ms() - begun_ms;
  }

 private:
  static constexpr std::size_t num_finalists = 10;

  /// Runs of finalists and the first runs of others.
  [[nodiscard]] std::size_t judged_runs() const { return num_finalists + next_ + 4; }

  [[nodiscard]] static double step_s(std::size_t member) {
    return member < num_finalists ? 0.02 * (1 + 0.001 * static_cast<double>(member))
                                  : 0.025 + 1e-5 * static_cast<double>(member);
  }
  template <class Ended>
  void fill(std::size_t member, Ended& run) {
    constexpr double run_to_run = 0.01, step_to_step = 0.02;
    constexpr int warmup_steps = 3, timed_steps = 20;
    const double slower = run_to_run * normal_(random_);
    run.measurement.status = Status::ok;
    run.measurement.warmup_steps = warmup_steps;
    for (int step = 0; step < warmup_steps + timed_steps; ++step)
      run.measurement.step_times_s.push_back(step_s(member) *
                                             std::exp(slower + step_to_step * normal_(random_)));
    run.is_alone = true;
    run.started_at = now_;
    run.finished_at = now_ += std::chrono::milliseconds(500);
  }

  std::mt19937_64 random_;
  std::normal_distribution<double> normal_;
  std::chrono::system_clock::time_point now_{std::chrono::seconds(1'700'000'000)};
  std::size_t next_ = 0;
  std::optional<Scoreboard> scoreboard_;
};

void print_finals() {
  constexpr int num_decisions = 20;
  for (const std::size_t num_members : {14U, 200U, 2000U})
    for (const std::size_t num_runs : {24U, 64U}) {
      FinalsOfTen finals(num_members, 1);
      finals.go_on_until(num_runs);
      double sum_ms = 0, most_ms = 0;
      for (int each = 0; each < num_decisions; ++each) {
        const double taken_ms = finals.decision_ms();
        sum_ms += taken_ms;
        most_ms = std::max(most_ms, taken_ms);
      }
      std::printf(
          "finals of ten among %zu members, from %zu runs on: %.2f ms on average, %.2f ms "
          "at most\n",
          num_members, num_runs, sum_ms / num_decisions, most_ms);
    }
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
  print_finals();
  return 0;
}
