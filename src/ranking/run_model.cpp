#include "run_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>

#include "deviations.hpp"
#include "draws.hpp"
#include "drift.hpp"
#include "run_speeds.hpp"

namespace dstune {
namespace {

double square(double number) {
  return number * number;
}

/// The logarithm of a normal density, but for a constant.
double log_normal(double distance, double variance) {
  return -(std::log(variance) + square(distance) / variance) / 2;
}

/// Speeds are counted from the middle of all runs.
double middle_of(const std::vector<ModelledRun>& runs) {
  double sum = 0;
  for (const ModelledRun& run : runs) sum += run.log_speed;
  return sum / static_cast<double>(runs.size());
}

std::vector<double> times_of(const std::vector<ModelledRun>& runs) {
  std::vector<double> at_s;
  for (const ModelledRun& run : runs) at_s.push_back(run.at_s);
  return at_s;
}

std::vector<std::size_t> places_of(const std::vector<ModelledRun>& runs) {
  std::vector<std::size_t> places;
  for (const ModelledRun& run : runs) places.push_back(run.place);
  return places;
}

class Sampler {
 public:
  Sampler(const std::vector<ModelledRun>& runs, const std::vector<std::optional<double>>& predicted,
          const PredictionErrors& errors, const RunModelOptions& options)
      : policy_(*options.policy),
        runs_(runs),
        errors_(errors),
        random_(options.seed),
        middle_(middle_of(runs)),
        place_of_(places_of(runs)),
        drift_process_(times_of(runs), policy_.drift_lengths),
        speeds_(drift_process_, place_of_, predicted.size()),
        levels_(policy_.lowest_deviation, policy_.highest_deviation),
        run_prior_(levels_.believed(policy_.run_deviation, policy_.run_freedom)),
        drift_prior_(levels_.believed(policy_.drift_deviation, policy_.drift_freedom)),
        is_disturbed_(runs.size(), false),
        cleared_(runs.size()),
        variances_(runs.size()),
        priors_(predicted.size()),
        predicted_(predicted),
        runs_of_(predicted.size()),
        tail_weights_(predicted.size(), 1),
        is_wrong_(predicted.size(), false) {
    for (std::size_t run = 0; run < runs.size(); ++run) {
      runs_of_[place_of_[run]].push_back(run);
      has_alone_ |= runs[run].is_alone;
      has_neighbours_ |= !runs[run].is_alone;
      square_errors_.push_back(square(runs[run].error));
      centered_.push_back(runs[run].log_speed - middle_);
    }
    for (std::optional<double>& each : predicted_)
      if (each) *each -= middle_;
    double freedom = policy_.prediction_freedom;
    if (errors.count >= policy_.enough_predictions) {
      // It was estimated from so many.
      prediction_deviation_ = std::clamp(errors.deviation, levels_.lowest(), levels_.highest());
      freedom = 1 / std::sqrt(static_cast<double>(errors.count));
    }
    usual_prediction_deviation_ = prediction_deviation_;
    prediction_prior_ = levels_.believed(prediction_deviation_, freedom);
  }

  /// One sweep over all that is unknown.
  void sweep() {
    draw_what_is_wrong();
    draw_speeds();
    draw_neighbour();
    draw_slowdown();
    draw_run_deviation();
    draw_drift_scale();
    draw_predictions();
  }

  [[nodiscard]] RunSpeeds& speeds() { return speeds_; }
  [[nodiscard]] Draws& random() { return random_; }
  [[nodiscard]] double middle() const { return middle_; }
  [[nodiscard]] double run_deviation() const { return run_deviation_; }
  [[nodiscard]] double drift_deviation() const { return drift_deviation_; }
  [[nodiscard]] double num_disturbed() const {
    return static_cast<double>(std::ranges::count(is_disturbed_, true));
  }

 private:
  [[nodiscard]] double variance(std::size_t run, bool is_disturbed) const {
    const double undisturbed = square_errors_[run] + square(run_deviation_);
    return is_disturbed ? undisturbed + square(slowdown_ / 2) : undisturbed;
  }
  /// The belief about a member's speed without its runs.
  [[nodiscard]] NormalBelief prior_of(std::size_t place, bool is_wrong) const {
    // The middle of all runs is 0.
    if (!predicted_[place]) return {0, square(policy_.unknown_deviation)};
    return {*predicted_[place] + shift_,
            is_wrong ? square(policy_.wrong_deviation)
                     : square(prediction_deviation_) / tail_weights_[place]};
  }

  /// A run's speed for its member and the drift, without the effects that are known to have slowed
  /// it.
  [[nodiscard]] double cleared(std::size_t run, bool is_disturbed) const {
    return centered_[run] + (is_disturbed ? slowdown_ : 0) - (runs_[run].is_alone ? 0 : neighbour_);
  }
  [[nodiscard]] double residual(std::size_t run) const {
    return centered_[run] - speeds_.members()[place_of_[run]] -
           speeds_.drift()[drift_process_.moment_of(run)] - (runs_[run].is_alone ? 0 : neighbour_);
  }

  /// The runs of a member, as they say of its speed: sums over them by their precision.
  struct Evidence {
    double weight = 0, sum = 0, squares = 0;
    void add(double value, double variance, double sign = 1) {
      weight += sign / variance;
      sum += sign * value / variance;
      squares += sign * value * value / variance;
    }
  };

  /// A run that is far from its prediction was disturbed, or the prediction is wrong. Both are
  /// drawn together, and for any speed of the member: one after the other they would never change.
  /// Each sweep does so with another one of a member's runs.
  void draw_what_is_wrong() {
    ++num_sweeps_;
    for (std::size_t place = 0; place < runs_of_.size(); ++place) {
      const std::vector<std::size_t>& runs = runs_of_[place];
      Evidence all;
      for (const std::size_t run : runs) all.add(value_of(run), variance(run, is_disturbed_[run]));
      const std::array priors = {prior_of(place, false), prior_of(place, true)};
      for (std::size_t each = 0; each < runs.size(); ++each) {
        const std::size_t run = runs[each];
        all.add(value_of(run), variance(run, is_disturbed_[run]), -1);
        const bool asks_for_prediction = predicted_[place] && num_sweeps_ % runs.size() == each;
        const auto which = asks_for_prediction ? choose_case(run, all, priors, 0, 4)
                           : is_wrong_[place]  ? choose_case(run, all, priors, 2, 4)
                                               : choose_case(run, all, priors, 0, 2);
        is_disturbed_[run] = which % 2 == 1;
        is_wrong_[place] = which / 2 == 1;
        all.add(value_of(run), variance(run, is_disturbed_[run]));
      }
    }
  }
  [[nodiscard]] double value_of(std::size_t run) const {
    return without_drift(run, is_disturbed_[run]);
  }
  [[nodiscard]] double without_drift(std::size_t run, bool is_disturbed) const {
    return cleared(run, is_disturbed) - drift_of(run);
  }
  /// 0 before the first draw.
  [[nodiscard]] double drift_of(std::size_t run) const {
    return speeds_.drift()[drift_process_.moment_of(run)];
  }

  /// Draws a case: 1, this run was disturbed; 2, its member's prediction is wrong; 3, both.
  std::size_t choose_case(std::size_t run, const Evidence& others,
                          const std::array<NormalBelief, 2>& priors, std::size_t first,
                          std::size_t end) {
    const double odds_disturbed = disturbed_share_ / (1 - disturbed_share_);
    const double odds_wrong = wrong_share_ / (1 - wrong_share_);
    std::array<double, 4> squares{}, weights{};
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t which = first; which < end; ++which) {
      const bool is_disturbed = which % 2 == 1, is_wrong = which / 2 == 1;
      const NormalBelief& prior = priors[is_wrong ? 1 : 0];
      const double own = variance(run, is_disturbed);
      Evidence all = others;
      all.add(without_drift(run, is_disturbed), own);
      all.add(prior.mean, prior.variance);
      squares[which] = all.squares - square(all.sum) / all.weight;
      least = std::min(least, squares[which]);
      weights[which] = (is_disturbed ? odds_disturbed : 1) * (is_wrong ? odds_wrong : 1) /
                       std::sqrt(own * prior.variance * all.weight);
    }
    double sum = 0;
    for (std::size_t which = first; which < end; ++which)
      weights[which] = sum += weights[which] * std::exp((least - squares[which]) / 2);
    const double drawn = sum * random_.uniform();
    std::size_t which = first;
    while (which + 1 < end && weights[which] < drawn) ++which;
    return which;
  }

  void draw_speeds() {
    for (std::size_t run = 0; run < runs_.size(); ++run) {
      cleared_[run] = cleared(run, is_disturbed_[run]);
      variances_[run] = variance(run, is_disturbed_[run]);
    }
    for (std::size_t place = 0; place < priors_.size(); ++place)
      priors_[place] = prior_of(place, is_wrong_[place]);
    speeds_.draw(drift_length_, square(drift_deviation_), cleared_, variances_, priors_, random_);
  }

  /// Only where some ran alone and some did not is it told from the speeds.
  void draw_neighbour() {
    if (!has_alone_ || !has_neighbours_) return;
    double weight = 1 / square(policy_.neighbour_deviation), sum = 0;
    for (std::size_t run = 0; run < runs_.size(); ++run) {
      if (runs_[run].is_alone) continue;
      weight += 1 / variances_[run];
      const double slowed = is_disturbed_[run] ? slowdown_ : 0;
      sum += (residual(run) + neighbour_ + slowed) / variances_[run];
    }
    neighbour_ = sum / weight + random_.normal() / std::sqrt(weight);
  }

  /// Draws a share of which `num` in `of` were seen. The prior counts as `before` more, one of them
  /// in the share.
  [[nodiscard]] double draw_share(double num, double of, double before) {
    const double yes = random_.gamma(1 + num);
    const double no = random_.gamma(before - 1 + of - num);
    return std::clamp(yes / (yes + no), 1e-6, policy_.most_disturbed);
  }

  void draw_slowdown() {
    disturbed_share_ =
        draw_share(num_disturbed(), static_cast<double>(runs_.size()), policy_.runs_seen_before);
    const auto& slowdowns = policy_.slowdowns;
    std::array<double, decltype(Policy::Runs::slowdowns){}.size()> log_weights{};
    for (std::size_t each = 0; each < slowdowns.size(); ++each) {
      slowdown_ = slowdowns[each];
      for (std::size_t run = 0; run < runs_.size(); ++run)
        if (is_disturbed_[run])
          log_weights[each] += log_normal(residual(run) + slowdown_, variance(run, true));
    }
    slowdown_ = slowdowns[random_.one_of(log_weights)];
  }

  void draw_run_deviation() {
    residuals_.clear();
    known_.clear();
    for (std::size_t run = 0; run < runs_.size(); ++run) {
      residuals_.push_back(square(residual(run) + (is_disturbed_[run] ? slowdown_ : 0)));
      known_.push_back(square_errors_[run] + (is_disturbed_[run] ? square(slowdown_ / 2) : 0));
    }
    run_deviation_ = levels_.draw(run_prior_, residuals_, known_, random_);
  }

  void draw_drift_scale() {
    const std::span<const double> drift = speeds_.drift();
    std::array<double, decltype(Policy::Runs::drift_lengths){}.size()> squares{}, weights{};
    for (std::size_t each = 0; each < weights.size(); ++each) {
      squares[each] = drift_process_.squares(each, drift);
      weights[each] =
          -(drift_process_.log_determinant(each) + squares[each] / square(drift_deviation_)) / 2;
    }
    drift_length_ = random_.one_of(weights);
    drift_deviation_ = levels_.draw(drift_prior_, static_cast<double>(drift.size()),
                                    squares[drift_length_], random_);
  }

  /// How far predictions are off, in common, usually, and each.
  void draw_predictions() {
    double weight = 0, sum = 0;
    if (errors_.count > 0) {
      weight = static_cast<double>(errors_.count) / square(usual_prediction_deviation_);
      sum = weight * errors_.center;
    }
    const double tails = policy_.tails;
    const std::span<const double> members = speeds_.members();
    double squares = 0, num_right = 0, num_wrong = 0;
    for (std::size_t place = 0; place < predicted_.size(); ++place) {
      if (!predicted_[place]) continue;
      if (is_wrong_[place]) {
        ++num_wrong;
        tail_weights_[place] = random_.gamma(tails / 2) / (tails / 2);
        continue;
      }
      ++num_right;
      const double off = members[place] - *predicted_[place];
      const double own = tail_weights_[place] / square(prediction_deviation_);
      // Those of the members are among the errors of all.
      if (errors_.count == 0) {
        weight += own;
        sum += own * off;
      }
      const double apart = square((off - shift_) / prediction_deviation_);
      tail_weights_[place] = random_.gamma((tails + 1) / 2) / ((tails + apart) / 2);
      squares += tail_weights_[place] * square(off - shift_);
    }
    wrong_share_ = draw_share(num_wrong, num_right + num_wrong, policy_.predictions_seen_before);
    if (num_right == 0) return;
    shift_ = sum / weight + random_.normal() / std::sqrt(weight);
    prediction_deviation_ = levels_.draw(prediction_prior_, num_right, squares, random_);
  }

  const Policy::Runs& policy_;
  const std::vector<ModelledRun>& runs_;
  PredictionErrors errors_;
  Draws random_;
  double middle_;
  std::vector<std::size_t> place_of_;
  Drift drift_process_;
  RunSpeeds speeds_;
  bool has_alone_ = false, has_neighbours_ = false;
  DeviationLevels levels_;
  DeviationLevels::Beliefs run_prior_, drift_prior_, prediction_prior_{};

  double run_deviation_ = policy_.run_deviation;
  double drift_deviation_ = policy_.drift_deviation;
  std::size_t drift_length_ = policy_.drift_lengths.size() / 2;
  double neighbour_ = 0;  ///< what one does to the logarithm of a speed
  std::vector<bool> is_disturbed_;
  double disturbed_share_ = 1 / policy_.runs_seen_before;
  double slowdown_ = policy_.slowdowns[policy_.slowdowns.size() / 2];
  double shift_ = errors_.center;  ///< of all predictions
  double prediction_deviation_ = policy_.prediction_deviation;
  double usual_prediction_deviation_ = 0;
  std::vector<double> square_errors_, centered_, cleared_, variances_;  ///< of each run
  std::vector<double> residuals_, known_;                               ///< likewise: squares
  std::vector<NormalBelief> priors_;                                    ///< of each member
  std::vector<std::optional<double>> predicted_;
  std::vector<std::vector<std::size_t>> runs_of_;  ///< each member
  std::vector<double> tail_weights_;  ///< of each member's prediction, as of Student's t
  std::vector<bool> is_wrong_;        ///< each member's prediction
  double wrong_share_ = 1 / policy_.predictions_seen_before;
  std::size_t num_sweeps_ = 0;
};

}  // namespace

RunBeliefs believe_runs(const std::vector<ModelledRun>& runs,
                        const std::vector<std::optional<double>>& predicted,
                        const PredictionErrors& errors, const RunModelOptions& options) {
  RunBeliefs beliefs;
  if (runs.empty()) return beliefs;
  Sampler sampler(runs, predicted, errors, options);
  for (int each = 0; each < options.policy->num_forgotten; ++each) sampler.sweep();
  const std::size_t num_members = predicted.size();
  // A sweep over few runs takes little, and tells more than a draw by the same noise.
  const auto num_runs = static_cast<int>(runs.size());
  const auto max_runs = static_cast<int>(options.policy->max_runs);
  const int draws_a_sweep =
      std::clamp((options.policy->draws_a_sweep * num_runs + max_runs - 1) / max_runs, 1,
                 options.policy->draws_a_sweep);
  const int num_sweeps = (options.num_draws + draws_a_sweep - 1) / draws_a_sweep;
  beliefs.draws.assign(num_members, {});
  for (std::vector<double>& of_member : beliefs.draws)
    of_member.reserve(static_cast<std::size_t>(options.num_draws));
  beliefs.log_speeds.assign(num_members, 0);
  std::vector<double> again(num_members);
  const auto add = [&](std::span<const double> draw) {
    for (std::size_t place = 0; place < num_members; ++place)
      beliefs.draws[place].push_back(draw[place] + sampler.middle());
  };
  for (int sweep = 0; sweep < num_sweeps; ++sweep) {
    sampler.sweep();
    for (std::size_t place = 0; place < num_members; ++place)
      beliefs.log_speeds[place] += sampler.speeds().expected()[place] / num_sweeps;
    add(sampler.speeds().members());
    for (int each = 1; each < draws_a_sweep; ++each) {
      if (static_cast<int>(beliefs.draws[0].size()) == options.num_draws) break;
      sampler.speeds().draw_members_again(again, sampler.random());
      add(again);
    }
    beliefs.run_deviation += sampler.run_deviation() / num_sweeps;
    beliefs.drift_deviation += sampler.drift_deviation() / num_sweeps;
    beliefs.disturbed_runs += sampler.num_disturbed() / num_sweeps;
  }
  for (double& each : beliefs.log_speeds) each += sampler.middle();
  return beliefs;
}

}  // namespace dstune
