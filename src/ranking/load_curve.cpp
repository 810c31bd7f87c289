// A chain of hidden states (forward and backward: Rabiner, Proc. IEEE 77, 1989), of which each is a
// load. Members' speeds are what their other runs say, cleared of the loads that are expected; so
// both are found in turns.
#include "load_curve.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "dstune/ranking/scoreboard.hpp"

namespace dstune {
namespace {

/// A load that is less is drift or noise.
constexpr double least_load = 0.12, load_step = 0.02;
constexpr std::size_t num_loads = 50;  ///< up to three times as slow; and none

/// The chance that there is none at the first run; and, from one run to the next, that one comes,
/// goes or becomes another one.
constexpr double chance_of_none = 0.95;
constexpr double chance_to_come = 0.005, chance_to_go = 0.05, chance_of_another = 0.02;
/// A run with a smaller chance of a load had none: where nothing tells it, few runs have one.
constexpr double least_chance = 0.2;
/// How runs of one member differ without a load, at least; and within one, as a share of it.
constexpr double least_run_deviation = 0.02, share_of_load = 0.05;
constexpr std::size_t enough_differences = 4;
/// One run in so many is slower by itself; by so much.
constexpr double strange_share = 0.03, strange_deviation = 0.5;
constexpr double tiny = 1e-9;  ///< so that nothing is impossible
/// Predictions are believed to be off by so much, as if so many had said it.
constexpr double prediction_deviation = 0.1, predictions_before = 4;
constexpr double unknown_deviation = 2;
/// The degrees of freedom of Student's t, for predictions.
constexpr double tails_of_predictions = 4;
constexpr double surprising_deviations = 3;
constexpr int max_rounds = 12, rounds_of_squares = 20;
constexpr double close_enough = 1e-3;

using States = std::array<double, num_loads + 1>;

double squared(double value) {
  return value * value;
}

constexpr double load_of(std::size_t state) {
  return state == 0 ? 0 : least_load + load_step * static_cast<double>(state - 1);
}

/// A run's speed without its load, as all but itself say it.
struct Expectation {
  double mean = 0, variance = 0;
  bool is_measured = false;
};

class Estimate {
 public:
  Estimate(const std::vector<LoadedRun>& runs, const std::vector<std::optional<double>>& predicted)
      : runs_(runs),
        predicted_(predicted),
        runs_of_(predicted.size()),
        loads_(runs.back().period + 1),
        likelihoods_(loads_.size()),
        forward_(loads_.size()) {
    for (std::size_t run = 0; run < runs.size(); ++run) runs_of_[runs[run].place].push_back(run);
    note_run_deviation();
    begin_near_the_truth();
  }

  LoadCurve find() {
    for (int round = 0; round < max_rounds; ++round) {
      weigh_predictions();
      note_likelihoods();
      if (pass_chain(round) < close_enough) break;
    }
    LoadCurve curve{loads_, std::vector<bool>(runs_.size())};
    for (std::size_t run = 0; run < runs_.size(); ++run) {
      const Expectation expected = expectation(run);
      const double off = std::abs(cleared(run) - expected.mean);
      curve.is_surprise[run] =
          is_guess_[runs_[run].period] ||
          (off > least_load &&
           off > surprising_deviations * std::sqrt(expected.variance + own_variance(run, 0)));
    }
    return curve;
  }

 private:
  [[nodiscard]] const Load& load(std::size_t run) const { return loads_[runs_[run].period]; }
  /// Its speed without the load that is expected.
  [[nodiscard]] double cleared(std::size_t run) const {
    return runs_[run].log_speed + load(run).expected;
  }

  [[nodiscard]] double own_variance(std::size_t run, double load) const {
    return squared(runs_[run].error) + squared(run_deviation_) + squared(share_of_load * load);
  }

  /// Loads that come and go make some of the differences between a member's runs large, and noise
  /// makes all of them: so the smallest quarter tells how large noise is.
  void note_run_deviation() {
    std::vector<double> differences;
    for (const std::vector<std::size_t>& of_member : runs_of_)
      for (std::size_t each = 1; each < of_member.size(); ++each)
        differences.push_back(
            std::abs(runs_[of_member[each]].log_speed - runs_[of_member[each - 1]].log_speed));
    if (differences.size() < enough_differences) return;
    const auto quarter = differences.begin() + static_cast<std::ptrdiff_t>(differences.size() / 4);
    std::ranges::nth_element(differences, quarter);
    // A quarter of the differences of two normal numbers are smaller than this, in deviations.
    constexpr double quarter_of_normal = 0.4506;
    run_deviation_ = std::max(run_deviation_, *quarter / quarter_of_normal);
  }

  /// Members that ran in several periods tell how much slower one is than another; in the fastest
  /// one there was no load. A period without any of them had the load of the nearest one with some.
  void begin_near_the_truth() {
    std::vector<std::vector<std::size_t>> compared_in(loads_.size());  // runs
    for (const std::vector<std::size_t>& of_member : runs_of_)
      if (of_member.size() > 1)
        for (const std::size_t run : of_member) compared_in[runs_[run].period].push_back(run);
    std::vector<std::size_t> compared;
    for (std::size_t period = 0; period < loads_.size(); ++period)
      if (!compared_in[period].empty()) compared.push_back(period);
    if (compared.empty()) return;
    // Least squares by turns: of the members' speeds, and of the periods' loads.
    std::vector<double> speeds(runs_of_.size());
    for (int round = 0; round < rounds_of_squares; ++round) {
      for (std::size_t place = 0; place < speeds.size(); ++place) {
        double sum = 0;
        for (const std::size_t run : runs_of_[place]) sum += cleared(run);
        speeds[place] = sum / static_cast<double>(runs_of_[place].size());
      }
      for (const std::size_t period : compared) {
        double sum = 0;
        for (const std::size_t run : compared_in[period])
          sum += speeds[runs_[run].place] - runs_[run].log_speed;
        loads_[period].expected = sum / static_cast<double>(compared_in[period].size());
      }
    }
    double least = HUGE_VAL;
    for (const std::size_t period : compared) least = std::min(least, loads_[period].expected);
    for (const std::size_t period : compared) {
      double& expected = loads_[period].expected;
      expected = expected - least < least_load ? 0 : expected - least;
    }
    const auto distance = [](std::size_t one, std::size_t other) {
      return one < other ? other - one : one - other;
    };
    for (std::size_t period = 0; period < loads_.size(); ++period) {
      const std::size_t nearest = *std::ranges::min_element(
          compared, {}, [&](std::size_t other) { return distance(period, other); });
      loads_[period].expected = loads_[nearest].expected;
    }
  }

  /// How far predictions are off, in common and each.
  void weigh_predictions() {
    std::vector<double> errors;
    for (std::size_t place = 0; place < runs_of_.size(); ++place) {
      if (!predicted_[place] || runs_of_[place].empty()) continue;
      const std::size_t run = runs_of_[place].front();
      errors.push_back(cleared(run) - *predicted_[place]);
    }
    if (errors.empty()) return;
    shift_ = median(errors);
    for (double& error : errors) error = std::abs(error - shift_);
    constexpr double deviations_of_median = 1.4826;
    const auto count = static_cast<double>(errors.size());
    const double off = deviations_of_median * median(std::move(errors));
    prediction_variance_ =
        (predictions_before * squared(prediction_deviation) + count * squared(off)) /
        (predictions_before + count);
  }

  [[nodiscard]] Expectation expectation(std::size_t run) const {
    const std::size_t place = runs_[run].place;
    // A second run says more than a prediction, which may be wrong altogether.
    const bool is_measured = runs_of_[place].size() > 1;
    const double prior_variance =
        predicted_[place] && !is_measured ? prediction_variance_ : squared(unknown_deviation);
    double weight = 1 / prior_variance;
    double sum = (predicted_[place] ? *predicted_[place] + shift_ : shift_) * weight;
    for (const std::size_t other : runs_of_[place]) {
      if (other == run) continue;
      const double own = own_variance(other, load(other).expected) + squared(load(other).deviation);
      weight += 1 / own;
      sum += cleared(other) / own;
    }
    return {sum / weight, 1 / weight, is_measured};
  }

  /// How likely the runs of each period are under each load, but for a factor.
  void note_likelihoods() {
    for (States& of_period : likelihoods_) of_period.fill(1);
    for (std::size_t run = 0; run < runs_.size(); ++run) {
      const Expectation expected = expectation(run);
      States& likelihoods = likelihoods_[runs_[run].period];
      for (std::size_t state = 0; state <= num_loads; ++state)
        likelihoods[state] *= likelihood(run, expected, load_of(state));
      normalise(likelihoods);
    }
  }

  [[nodiscard]] double likelihood(std::size_t run, const Expectation& expected, double load) const {
    const double variance = expected.variance + own_variance(run, load);
    const double off = squared(runs_[run].log_speed + load - expected.mean);
    if (!expected.is_measured)
      return std::pow(1 + off / variance / tails_of_predictions, -(tails_of_predictions + 1) / 2) /
             std::sqrt(variance);
    const double usual = (1 - strange_share) * std::exp(-off / variance / 2) / std::sqrt(variance);
    // Nothing makes a run much faster than its member is.
    if (runs_[run].log_speed + load > expected.mean + least_load) return usual + tiny;
    const double strange = variance + squared(strange_deviation);
    return usual + strange_share * std::exp(-off / strange / 2) / std::sqrt(strange);
  }

  static void normalise(States& states) {
    const double sum = std::accumulate(states.begin(), states.end(), 0.0);
    for (double& each : states) each /= sum;
  }

  /// Returns by how much a load has changed at most.
  double pass_chain(int round) {
    States coming;
    coming.fill((1 - chance_of_none) / num_loads);
    coming[0] = chance_of_none;
    for (std::size_t period = 0; period < loads_.size(); ++period) {
      if (period > 0) {
        const States& before = forward_[period - 1];
        const double loaded = 1 - before[0];
        const double anew = (before[0] * chance_to_come + loaded * chance_of_another) / num_loads;
        for (std::size_t state = 1; state <= num_loads; ++state)
          coming[state] = before[state] * (1 - chance_to_go - chance_of_another) + anew;
        coming[0] = before[0] * (1 - chance_to_come) + loaded * chance_to_go;
      }
      for (std::size_t state = 0; state <= num_loads; ++state)
        forward_[period][state] = coming[state] * likelihoods_[period][state];
      normalise(forward_[period]);
    }
    States backward;
    backward.fill(1);
    double most = 0;
    for (std::size_t period = loads_.size(); period-- > 0;) {
      States both{};
      for (std::size_t state = 0; state <= num_loads; ++state)
        both[state] = forward_[period][state] * backward[state];
      normalise(both);
      double mean = 0, squares = 0;
      for (std::size_t state = 0; state <= num_loads; ++state) {
        mean += both[state] * load_of(state);
        squares += both[state] * squared(load_of(state));
      }
      // Two members whose runs explain each other may else take turns for ever.
      const double kept = round < 2 ? 0 : 0.5;
      Load& load = loads_[period];
      Load next{kept * load.expected + (1 - kept) * mean,
                std::sqrt(std::max(0.0, squares - squared(mean)))};
      if (1 - both[0] < least_chance) next = {};
      most = std::max(most, std::abs(next.expected - load.expected));
      load = next;
      for (std::size_t state = 0; state <= num_loads; ++state)
        backward[state] *= likelihoods_[period][state];
      const double none = backward[0];
      const double any = std::accumulate(backward.begin() + 1, backward.end(), 0.0) / num_loads;
      backward[0] = (1 - chance_to_come) * none + chance_to_come * any;
      for (std::size_t state = 1; state <= num_loads; ++state)
        backward[state] = (1 - chance_to_go - chance_of_another) * backward[state] +
                          chance_to_go * none + chance_of_another * any;
      normalise(backward);
    }
    drop_guesses();
    return most;
  }

  /// Predictions alone show no load: they may be wrong of one member after the other. Some member
  /// must have run under it, and have run without it or under another one.
  void drop_guesses() {
    is_guess_.assign(loads_.size(), false);
    std::vector<std::size_t> stretch_of(
        loads_.size());  // of periods that have a load, or have none
    for (std::size_t period = 1; period < loads_.size(); ++period)
      stretch_of[period] = stretch_of[period - 1] +
                           ((loads_[period].expected > 0) != (loads_[period - 1].expected > 0));
    std::vector<bool> is_shown(stretch_of.back() + 1);
    for (const std::vector<std::size_t>& of_member : runs_of_)
      for (const std::size_t run : of_member)
        if (stretch_of[runs_[run].period] != stretch_of[runs_[of_member.front()].period]) {
          is_shown[stretch_of[runs_[run].period]] = true;
          is_shown[stretch_of[runs_[of_member.front()].period]] = true;
        }
    for (std::size_t period = 0; period < loads_.size(); ++period) {
      if (!(loads_[period].expected > 0) || is_shown[stretch_of[period]]) continue;
      loads_[period] = {};
      is_guess_[period] = true;
    }
  }

  const std::vector<LoadedRun>& runs_;
  const std::vector<std::optional<double>>& predicted_;
  std::vector<std::vector<std::size_t>> runs_of_;  ///< each member
  std::vector<Load> loads_;                        ///< of each period, as what follows
  std::vector<States> likelihoods_, forward_;
  std::vector<bool> is_guess_;  ///< predictions alone say that it had a load
  double run_deviation_ = least_run_deviation;
  double shift_ = 0, prediction_variance_ = squared(prediction_deviation);
};

}  // namespace

LoadCurve estimate_loads(const std::vector<LoadedRun>& runs,
                         const std::vector<std::optional<double>>& predicted) {
  return runs.empty() ? LoadCurve{} : Estimate(runs, predicted).find();
}

}  // namespace dstune
