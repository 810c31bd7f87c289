#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "simulated_search.hpp"

namespace dstune::bench {
namespace {

constexpr std::size_t num_run_again = 3;

/// Members that can run, the best prediction first.
std::vector<std::size_t> predicted_order(const PlannedSpace& space, std::mt19937_64& random) {
  std::vector<std::pair<double, std::size_t>> order;
  for (std::size_t member = 0; member < space.members.size(); ++member) {
    if (space.status(member) != PlanStatus::planned) continue;
    order.emplace_back(space.predicted_throughput(member).value_or(0), member);
  }
  for (std::size_t left = order.size(); left > 1; --left)
    std::swap(order[left - 1], order[random() % left]);
  std::ranges::stable_sort(order, std::ranges::greater(), &std::pair<double, std::size_t>::first);
  std::vector<std::size_t> members;
  for (const auto& [predicted, member] : order) members.push_back(member);
  return members;
}

class InOrder {
 public:
  InOrder(const SimulatedSpace& simulated, double build_s, std::int64_t seed)
      : simulated_(simulated), build_s_(build_s), random_(static_cast<std::uint64_t>(seed) + 1) {}

  SimulatedSearch run(std::size_t experiments) {
    std::vector<std::size_t> members = predicted_order(simulated_.space, random_);
    members.resize(std::min(members.size(), experiments));
    std::vector<Found> found;
    for (const std::size_t member : members) {
      ++result_.experiments;
      if (const auto speed = speed_of_run(member)) found.push_back({*speed, member});
    }
    const double search_s = result_.seconds;
    std::ranges::sort(found, std::ranges::greater(), &Found::speed);
    found.resize(std::min(found.size(), num_run_again));
    for (Found& one : found) {
      ++result_.runs_again;
      one.speed = (one.speed + speed_of_run(one.member).value_or(0)) / 2;
    }
    result_.finals_s = result_.seconds - search_s;
    result_.regret = 1;
    if (!found.empty()) {
      result_.answer = std::ranges::max(found, {}, &Found::speed).member;
      result_.regret = 1 - simulated_.truth[result_.answer] / simulated_.best_truth();
    }
    return result_;
  }

 private:
  struct Found {
    double speed = 0;  ///< samples/s
    std::size_t member = 0;
  };

  std::optional<double> speed_of_run(std::size_t member) {
    const double slower_by =
        simulated_.disturbance ? simulated_.disturbance(result_.seconds, random_) : 0;
    const Measurement run = simulated_.run(member, slower_by, random_);
    const auto& all_s = run.step_times_s;
    result_.seconds += build_s_ + std::accumulate(all_s.begin(), all_s.end(), 0.0);
    result_.steps += all_s.size();
    std::vector<double> timed_s = timed_steps_s(run);
    if (run.status != Status::ok || timed_s.empty()) return std::nullopt;
    const auto middle = timed_s.begin() + static_cast<std::ptrdiff_t>(timed_s.size() / 2);
    std::ranges::nth_element(timed_s, middle);
    const Experiment& experiment = simulated_.space.members[member].planned.experiment;
    return static_cast<double>(global_batch(experiment.config, experiment.shape.size())) / *middle;
  }

  const SimulatedSpace& simulated_;
  double build_s_;
  std::mt19937_64 random_;
  SimulatedSearch result_;
};

}  // namespace

SimulatedSearch in_predicted_order(const SimulatedSpace& simulated, std::size_t experiments,
                                   double build_s, std::int64_t seed) {
  return InOrder(simulated, build_s, seed).run(experiments);
}

}  // namespace dstune::bench
