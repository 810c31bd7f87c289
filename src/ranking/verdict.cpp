#include "dstune/ranking/verdict.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "dstune/ranking/scoreboard.hpp"
#include "run_facts.hpp"
#include "run_model.hpp"

namespace dstune {
namespace {

/// A few steps say little of how far their mean may be off. A run whose steps are alike by luck
/// would count for far more than others. So each run gets as many more degrees of freedom that say
/// the usual error.
void pool_errors(std::vector<RunFacts>& runs, double usual_degrees) {
  std::vector<double> errors;
  for (const RunFacts& run : runs) errors.push_back(run.error);
  const double usual = median(std::move(errors));
  for (RunFacts& run : runs)
    run.error =
        std::sqrt((run.degrees * std::pow(run.error, 2) + usual_degrees * std::pow(usual, 2)) /
                  (run.degrees + usual_degrees));
}

/// The middle of each run. Runs that were alone at the same time took turns step by step: whatever
/// the machine did, it did to all of them, so they have one middle.
std::vector<double> middles_of(const std::vector<RunFacts>& facts) {
  std::vector<std::size_t> order(facts.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t run) { return facts[run].begin_s; });
  std::vector<double> middles(facts.size());
  for (std::size_t first = 0; first < order.size();) {
    double until_s = facts[order[first]].end_s, sum_s = 0;
    std::size_t end = first;
    do {
      const RunFacts& run = facts[order[end]];
      until_s = std::min(until_s, run.end_s);
      sum_s += (run.begin_s + run.end_s) / 2;
      ++end;
    } while (end < order.size() && facts[order[first]].is_alone && facts[order[end]].is_alone &&
             facts[order[end]].begin_s < until_s);
    for (std::size_t each = first; each < end; ++each)
      middles[order[each]] = sum_s / static_cast<double>(end - first);
    first = end;
  }
  return middles;
}

/// A member's score by its speed, between the ends of what is asked for. A score takes a model of
/// the target, and is asked for a thousand times: so it is read from straight lines.
class ScoreCurve {
 public:
  ScoreCurve(const Scoreboard& scoreboard, std::size_t member, double low, double high)
      : low_(low), step_((high - low) / num_lines) {
    for (int end = 0; end <= num_lines; ++end)
      ends_[static_cast<std::size_t>(end)] = scoreboard.score_at(member, low + end * step_);
  }
  [[nodiscard]] double at(double faster_by) const {
    if (!(step_ > 0)) return ends_.front();
    const double place = std::clamp((faster_by - low_) / step_, 0.0, num_lines - 1e-9);
    const auto line = static_cast<std::size_t>(place);
    return ends_[line] + (place - static_cast<double>(line)) * (ends_[line + 1] - ends_[line]);
  }

 private:
  static constexpr int num_lines = 64;
  double low_, step_;
  std::array<double, num_lines + 1> ends_{};
};

/// A load that is expected to be less may be none.
constexpr double noticed_load = 0.05;

double share_of(const std::vector<double>& scores, const auto& condition) {
  double count = 0;
  for (std::size_t draw = 0; draw < scores.size(); ++draw) count += condition(draw) ? 1 : 0;
  return count / static_cast<double>(scores.size());
}

double quantile(std::vector<double> values, double probability) {
  const auto at = static_cast<std::ptrdiff_t>(probability * static_cast<double>(values.size() - 1));
  std::ranges::nth_element(values, values.begin() + at);
  return values[static_cast<std::size_t>(at)];
}

}  // namespace

Verdict::Verdict(const Scoreboard& scoreboard, Care care)
    : Verdict(scoreboard, care, scoreboard.first_runs()) {}

Verdict::Verdict(const Scoreboard& scoreboard, Care care, const FirstRuns& first_runs)
    : relevant_gain_(scoreboard.policy().answering.relevant_gain) {
  const Policy::Runs& policy = scoreboard.policy().runs;
  const bool is_quick = care == Care::quick;
  const std::size_t max_runs = is_quick ? policy.max_runs_quick : policy.max_runs;
  const int num_draws = is_quick ? policy.num_draws_quick : policy.num_draws;
  std::vector<RunFacts> facts;
  std::vector<std::size_t> place_of;
  std::vector<std::optional<double>> predicted;
  std::vector<std::size_t> members;
  for (const std::size_t member : first_runs.best) {
    if (members.size() == max_runs || (members.size() >= 2 && facts.size() >= max_runs)) break;
    const std::vector<RunFacts>& of_member = scoreboard.facts_of_runs(member);
    facts.insert(facts.end(), of_member.begin(), of_member.end());
    place_of.resize(facts.size(), members.size());
    predicted.push_back(predicted_log_speed(*scoreboard.row(member).record));
    members.push_back(member);
  }
  num_runs_ = facts.size();
  if (members.empty()) return;
  pool_errors(facts, policy.usual_error_degrees);
  // A run under a load is worth what it would have been without; less, as that is in doubt.
  for (std::size_t run = 0; run < facts.size(); ++run) {
    const Load load = scoreboard.load_of(members[place_of[run]], facts[run].run);
    facts[run].log_speed += load.expected;
    facts[run].error = std::hypot(facts[run].error, load.deviation);
    loaded_runs_ += load.expected >= noticed_load ? 1 : 0;
    largest_load_ = std::max(largest_load_, std::expm1(load.expected));
  }
  const std::vector<double> at_s = middles_of(facts);
  std::vector<ModelledRun> runs;
  for (std::size_t run = 0; run < facts.size(); ++run)
    runs.push_back(
        {place_of[run], at_s[run], facts[run].log_speed, facts[run].error, facts[run].is_alone});
  RunBeliefs beliefs =
      believe_runs(runs, predicted, first_runs.errors, {.num_draws = num_draws, .policy = &policy});
  run_deviation_ = beliefs.run_deviation;
  drift_deviation_ = beliefs.drift_deviation;
  disturbed_runs_ = beliefs.disturbed_runs;

  std::vector<std::pair<std::size_t, Judged>> judged;
  best_scores_.assign(static_cast<std::size_t>(num_draws),
                      -std::numeric_limits<double>::infinity());
  for (std::size_t place = 0; place < members.size(); ++place) {
    judged.emplace_back(members[place], judge(scoreboard, members[place], beliefs.log_speeds[place],
                                              std::move(beliefs.draws[place])));
    for (std::size_t draw = 0; draw < best_scores_.size(); ++draw)
      best_scores_[draw] = std::max(best_scores_[draw], judged.back().second.scores[draw]);
  }
  for (auto& [member, one] : judged)
    one.chance = share_of(best_scores_,
                          [&](std::size_t draw) { return one.scores[draw] >= best_scores_[draw]; });
  // So few draws do not tell small chances apart.
  const double little = scoreboard.policy().answering.as_likely;
  const auto clear_chance = [=](const Judged& one) { return one.chance < little ? 0 : one.chance; };
  std::ranges::stable_sort(judged, [&](const auto& one, const auto& other) {
    const double mine = clear_chance(one.second), theirs = clear_chance(other.second);
    return mine != theirs ? mine > theirs : one.second.expected_score > other.second.expected_score;
  });
  for (auto& [member, one] : judged) {
    members_.push_back(member);
    judged_.push_back(std::move(one));
  }
}

Verdict::Judged Verdict::judge(const Scoreboard& scoreboard, std::size_t member, double expected,
                               std::vector<double> draws) {
  const double first = scoreboard.facts_of_runs(member).front().log_speed;
  const auto [low, high] = std::ranges::minmax(draws);
  const ScoreCurve curve(scoreboard, member, low - first, high - first);
  Judged judged;
  judged.expected_score = scoreboard.score_at(member, expected - first);
  for (const double draw : draws) judged.scores.push_back(curve.at(draw - first));
  const auto at = [&](double probability) {
    return draws.begin() +
           static_cast<std::ptrdiff_t>(probability * static_cast<double>(draws.size() - 1));
  };
  const auto lower = at(0.025), upper = at(0.975);
  std::ranges::nth_element(draws, lower);
  judged.speed = {expected - first, *lower - first, *lower - first};
  // The upper end is among those behind the lower one.
  if (upper > lower) {
    std::nth_element(lower + 1, upper, draws.end());
    judged.speed.high = *upper - first;
  }
  return judged;
}

std::optional<std::size_t> Verdict::place_of(std::size_t member) const {
  const auto found = std::ranges::find(members_, member);
  if (found == members_.end()) return std::nullopt;
  return static_cast<std::size_t>(found - members_.begin());
}

double Verdict::chance_near_best(std::size_t place) const {
  const double tolerated = std::log1p(relevant_gain_);
  return share_of(best_scores_, [&](std::size_t draw) {
    return judged_[place].scores[draw] + tolerated >= best_scores_[draw];
  });
}

double Verdict::chance_above(std::size_t place, std::size_t other, double share) const {
  const double least = std::log1p(share);
  return share_of(best_scores_, [&](std::size_t draw) {
    return judged_[place].scores[draw] > judged_[other].scores[draw] + least;
  });
}

double Verdict::gain_at_most(std::size_t place, std::size_t other, double probability) const {
  std::vector<double> gains;
  for (std::size_t draw = 0; draw < best_scores_.size(); ++draw)
    gains.push_back(judged_[place].scores[draw] - judged_[other].scores[draw]);
  return std::expm1(quantile(std::move(gains), probability));
}

}  // namespace dstune
