#include "dstune/train/tracing.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>

#include "agreement.hpp"
#include "barrier_group.hpp"
#include "dstune/base/error.hpp"
#include "dstune/train/executor.hpp"
#include "executor/dispatch.hpp"

namespace dstune {
namespace {

using Clock = std::chrono::steady_clock;

/// The first step builds matrix products and touches memory; of stage 3 it is another program.
constexpr std::int64_t warmup_steps = 2;
constexpr std::size_t min_steps = 2;
constexpr std::size_t max_steps = 15;
/// Of short steps so many that together they take this long.
constexpr double enough_s = 0.1;

double seconds_since(Clock::time_point began) {
  return std::chrono::duration<double>(Clock::now() - began).count();
}

/// The largest of every rank's. Collective over the group.
double slowest(ProcessGroup& group, double mine) {
  const std::vector<double> all = group.exchange(std::array{mine});
  return *std::max_element(all.begin(), all.end());
}

}  // namespace

std::optional<TracedSteps> trace_steps(const StepPlan& plan, Device& device, ProcessGroup& group,
                                       std::int64_t seed, double budget_s, const Waiter& waiter,
                                       TraceClock clock) {
  const Clock::time_point began = Clock::now();
  train::BarrierGroup rendezvous(group, clock);
  std::unique_ptr<Executor> executor;
  const train::Failure failure = train::agree(
      group, train::attempt([&] {
        executor = std::make_unique<Executor>(plan, device, rendezvous, seed, Guard::none, waiter);
      }));
  if (failure.status == Status::out_of_memory) return std::nullopt;
  if (failure) throw Error(failure.reason);

  executor->initialize();
  std::int64_t step = 0;
  const std::int64_t first = std::max<std::int64_t>(warmup_steps, steps_until_alike(device));
  while (step < first) executor->step(step++);
  TracedSteps traced;
  for (double spent_s = 0;;) {
    StepTrace& trace = traced.traces.emplace_back();
    rendezvous.begin(trace);
    executor->step(step++, &trace, clock);
    rendezvous.end();
    group.exchange(std::array{0.0});
    const Clock::time_point step_began = Clock::now();
    executor->step(step++);
    traced.steps_s.push_back(slowest(group, seconds_since(step_began)));
    spent_s += traced.steps_s.back();
    const bool is_enough = spent_s >= enough_s || traced.steps_s.size() >= max_steps ||
                           slowest(group, seconds_since(began)) >= budget_s;
    if (is_enough && traced.steps_s.size() >= min_steps) return traced;
  }
}

double median_together(ProcessGroup& group, double budget_s, const std::function<double()>& timed) {
  timed();
  std::vector<double> times_s;
  for (double spent_s = 0;
       times_s.size() < min_steps + 1 || (spent_s < budget_s && times_s.size() < max_steps);) {
    group.exchange(std::array{0.0});
    const Clock::time_point began = Clock::now();
    times_s.push_back(slowest(group, timed()));
    spent_s += slowest(group, seconds_since(began));
  }
  const auto middle = times_s.begin() + static_cast<std::ptrdiff_t>(times_s.size() / 2);
  std::nth_element(times_s.begin(), middle, times_s.end());
  return *middle;
}

double time_together(ProcessGroup& group, double budget_s, const std::function<void()>& work,
                     TraceClock clock) {
  return median_together(group, budget_s, [&] {
    const double began_s = train::seconds_by(clock);
    work();
    return train::seconds_by(clock) - began_s;
  });
}

}  // namespace dstune
