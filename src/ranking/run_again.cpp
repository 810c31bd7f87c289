#include "dstune/ranking/run_again.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "dstune/base/error.hpp"
#include "dstune/base/text.hpp"

namespace dstune {
namespace {

/// A control is timed for this share of a slice. All of them take no more than these shares of the
/// search's time: where the load is in doubt, and where one is due.
constexpr double slice_of_control = 0.2, share_in_doubt = 0.15, share_of_due = 0.04;
constexpr std::uint64_t least_results = 2, first_interval = 4;
constexpr std::size_t cheap_among = 20;
constexpr double twice = 2, tolerated_load = 0.05;

}  // namespace

bool is_settled(const Scoreboard& scoreboard) {
  if (!scoreboard.verdict() || !scoreboard.best()) return true;
  const auto place = scoreboard.verdict()->place_of(*scoreboard.best());
  return !place || scoreboard.verdict()->chance_near_best(*place) >=
                       scoreboard.policy().repeating.enough_chance;
}

std::vector<std::size_t> contenders(const Scoreboard& scoreboard) {
  const Policy::Repeating& policy = scoreboard.policy().repeating;
  std::vector<std::size_t> members;
  if (!scoreboard.verdict()) return members;
  const Verdict& verdict = *scoreboard.verdict();
  for (std::size_t place = 0; place < verdict.members().size(); ++place) {
    const std::size_t member = verdict.members()[place];
    const bool is_likely =
        members.size() < policy.min_finalists || verdict.chance_best(place) >= policy.little_chance;
    if ((is_likely && members.size() < policy.max_finalists) || member == scoreboard.best())
      members.push_back(member);
  }
  return members;
}

RunAgainPolicy::RunAgainPolicy(Scoreboard& scoreboard, Options options)
    : scoreboard_(scoreboard), options_(std::move(options)), first_runs_between_(first_interval) {
  scoreboard_.rows().visit_open([&](std::size_t member, const Row& row) {
    for (const Repeat& repeat : row.repeats)
      if (repeat.kind != RepeatKind::final_round) ++spread_runs_[member];
    if (num_final_tries(row) > 0) scoreboard_.join_finals({member});
  });
}

/// Every reported interval needs to know how much runs differ; and what races is compared with the
/// best, for which a lucky run must not stand.
std::optional<RunAgain> RunAgainPolicy::during_search(double time_left_s) {
  if (auto control = next_control(time_left_s)) return control;
  const auto best = scoreboard_.best();
  if (!options_.repeats_best || !best) return std::nullopt;
  const Policy::Repeating& policy = scoreboard_.policy().repeating;
  if (scoreboard_.num_results() < policy.results_before_repeats) return std::nullopt;
  int total = 0;
  for (const auto& [member, count] : spread_runs_) total += count;
  int& own = spread_runs_[*best];
  if (own >= policy.repeats_of_best ||
      total >= policy.repeats_at_first +
                   static_cast<int>(scoreboard_.num_results() / policy.results_a_repeat) ||
      time_left_s < policy.runs_left * duration_s(*best))
    return std::nullopt;
  ++own;
  return RunAgain{*best, RepeatKind::spread, own,
                  scoreboard_.row(*best).record->measurement.world_ranks};
}

std::optional<RunAgain> RunAgainPolicy::after_search(double time_left_s) {
  if (!scoreboard_.best()) return std::nullopt;
  if (end_if_complete()) return std::nullopt;
  if (auto rerun = next_rerun(time_left_s)) return rerun;
  return next_in_finals(time_left_s);
}

/// The same member each time tells what has changed since. A load may slow members unlike, so it is
/// one as the best is: the best so far, at first, unless one of the best is much cheaper; and
/// another one where it takes much longer than the best by now.
std::size_t RunAgainPolicy::member_of_control() {
  const auto step_s = [&](std::size_t member) {
    return mean_step_s(scoreboard_.row(member).record->measurement);
  };
  const std::size_t best = *scoreboard_.best();
  if (member_of_controls_ && step_s(*member_of_controls_) <= twice * step_s(best))
    return *member_of_controls_;
  std::size_t cheapest = best;
  for (const std::size_t member : scoreboard_.best_members(cheap_among))
    if (step_s(member) > 0 && step_s(member) < step_s(cheapest)) cheapest = member;
  member_of_controls_ = step_s(best) <= twice * step_s(cheapest) ? best : cheapest;
  return *member_of_controls_;
}

/// A control runs at once where the load is in doubt; else rarely, and ever more rarely while there
/// is none.
std::optional<RunAgain> RunAgainPolicy::next_control(double time_left_s) {
  if (!options_.has_controls || !scoreboard_.best()) return std::nullopt;
  const std::uint64_t ended = scoreboard_.num_first_runs();
  if (ended < least_results || ended == first_runs_at_control_) return std::nullopt;
  const bool is_loaded = scoreboard_.load_now().expected > tolerated_load;
  if (is_loaded) first_runs_between_ = first_interval;
  const bool is_due = ended >= first_runs_at_control_ + first_runs_between_;
  if (!scoreboard_.is_load_in_doubt() && !is_due) return std::nullopt;
  first_runs_at_control_ = ended;
  const std::size_t member = member_of_control();
  const double share = is_due && !scoreboard_.is_load_in_doubt() ? share_of_due : share_in_doubt;
  const Measurement& first = scoreboard_.row(member).record->measurement;
  const std::size_t least_steps = scoreboard_.policy().measuring.min_timed_steps;
  const std::vector<double> timed_s = timed_steps_s(first);
  const double all_s = std::accumulate(timed_s.begin(), timed_s.end(), 0.0);
  const double share_of_steps = std::max(
      slice_of_control, static_cast<double>(least_steps) / static_cast<double>(timed_s.size()));
  // It is built and warmed up as a first run is.
  const double needed_s = duration_s(member) - (1 - std::min(1.0, share_of_steps)) * all_s;
  forget_if_more_ended();
  if (!search_s_) search_s_ = search_s(scoreboard_);
  if (controls_s_ + needed_s > share * *search_s_ || time_left_s < needed_s) return std::nullopt;
  controls_s_ += needed_s;
  if (is_due) first_runs_between_ *= 2;
  return RunAgain{.member = member,
                  .kind = RepeatKind::control,
                  .round = ++spread_runs_[member],
                  .slice_share = slice_of_control};
}

bool RunAgainPolicy::end_if_complete() {
  if (!options_.is_complete) return false;
  if (!scoreboard_.verdict()) scoreboard_.judge();
  scoreboard_.end_finals();
  return true;
}

/// A look at all members takes long, so it is done once.
void RunAgainPolicy::forget_if_more_ended() {
  if (known_first_runs_ == scoreboard_.num_first_runs()) return;
  known_first_runs_ = scoreboard_.num_first_runs();
  raced_out_.reset();
  search_s_.reset();
}

std::optional<RunAgain> RunAgainPolicy::next_rerun(double time_left_s) {
  forget_if_more_ended();
  if (!raced_out_) {
    raced_out_.emplace();
    scoreboard_.visit_run([&](std::size_t member, const Row& row) {
      const Record& record = *row.record;
      if (record.measurement.status != Status::raced_out) return;
      const Load load = scoreboard_.load_of(member);
      const bool was_loaded = load.expected > tolerated_load || load.deviation > tolerated_load;
      if (record.is_alone && !was_loaded) return;
      const auto value = value_so_far(record.measurement, scoreboard_.metric(), record.experiment,
                                      StepEstimate::mean, scoreboard_.policy().intervals);
      if (!value) return;
      const double sign = is_minimised(scoreboard_.metric()) ? -1 : 1;
      MetricValue cleared = *value;
      cleared.value *= std::exp(sign * (load.expected + load.deviation));
      raced_out_->emplace_back(member, cleared);
    });
  }
  const double best = scoreboard_.ranked_value(*scoreboard_.best())->value;
  for (const auto& [member, value] : *raced_out_) {
    if (is_rerun(member) || std::abs(scoreboard_.in_target(member, value).value / best - 1) >
                                scoreboard_.policy().repeating.rerun_within)
      continue;
    if (time_left_s < 2 * duration_s(*scoreboard_.best())) continue;
    reruns_.insert(member);
    return RunAgain{member};
  }
  return std::nullopt;
}

/// Empty where the finalists are to be measured again.
std::string RunAgainPolicy::no_finals_reason(const std::vector<std::size_t>& finalists) const {
  if (finalists.empty()) return "the job died in it twice";
  if (scoreboard_.num_results() < 2 && (!options_.races || options_.is_alone_in_space))
    return "there is nothing to compare it with";
  return "";
}

int RunAgainPolicy::rounds_of(std::size_t member) const {
  const auto asked = asked_rounds_.find(member);
  return std::max(num_final_tries(scoreboard_.row(member)),
                  asked == asked_rounds_.end() ? 0 : asked->second);
}

std::vector<std::size_t> RunAgainPolicy::under_way() const {
  std::vector<std::size_t> members;
  for (const auto& [member, round] : asked_rounds_)
    if (round > num_final_tries(scoreboard_.row(member))) members.push_back(member);
  return members;
}

void RunAgainPolicy::withdraw_rounds() {
  asked_rounds_.clear();
}

bool RunAgainPolicy::have_finals_ended() const {
  return scoreboard_.finals().is_done || !scoreboard_.finals().reason.empty();
}

bool RunAgainPolicy::has_begun() const {
  return std::ranges::any_of(scoreboard_.repeated(), [&](std::size_t member) {
    return num_final_tries(scoreboard_.row(member)) > 0;
  });
}

/// A best member that was not measured again is not settled, whatever the model makes of its one
/// run.
bool RunAgainPolicy::is_settled_by_finals() const {
  const auto best = scoreboard_.best();
  return is_settled(scoreboard_) && (!best || num_final_tries(scoreboard_.row(*best)) > 0);
}

/// The order A B C C B A: slow changes of the machine are the same for all.
std::vector<std::size_t> RunAgainPolicy::in_turn(std::vector<std::size_t> finalists) const {
  int rounds = 0;
  for (const std::size_t member : finalists) rounds = std::max(rounds, rounds_of(member));
  std::ranges::sort(finalists);
  if (rounds % 2 == 1) std::ranges::reverse(finalists);
  return finalists;
}

std::vector<std::size_t> RunAgainPolicy::choose_finalists() {
  std::vector<std::size_t> finalists = contenders(scoreboard_);
  std::erase_if(finalists, [&](std::size_t member) {
    const auto died = options_.deaths.find(member);
    return died != options_.deaths.end() &&
           died->second >= scoreboard_.policy().repeating.deaths_until_left_out;
  });
  if (std::string reason = no_finals_reason(finalists); !reason.empty() && !has_begun()) {
    scoreboard_.give_up_finals(std::move(reason));
    return {};
  }
  // The gain over the baseline is of runs in turns, too; one of its is enough, and it goes first
  // where time is short.
  const auto& baseline = scoreboard_.setup().baseline;
  if (baseline && scoreboard_.verdict() && scoreboard_.verdict()->place_of(*baseline) &&
      rounds_of(*baseline) == 0 && !options_.deaths.contains(*baseline) &&
      std::ranges::find(finalists, *baseline) == finalists.end())
    finalists.push_back(*baseline);
  std::vector<std::size_t> joining = in_turn(finalists);
  std::ranges::reverse(joining);
  scoreboard_.join_finals(joining);
  return finalists;
}

void RunAgainPolicy::end_without_time(double needed_s) {
  if (has_begun())
    scoreboard_.end_finals();
  else
    scoreboard_.give_up_finals("the time limit leaves less than the " + format_duration(needed_s) +
                               " that a run takes");
}

std::optional<RunAgain> RunAgainPolicy::next_in_finals(double time_left_s) {
  if (have_finals_ended()) return std::nullopt;
  scoreboard_.judge();
  // A first round is gone through, so that at least two are compared.
  const bool is_first_round = !has_begun() || std::ranges::any_of(turns_, [&](std::size_t member) {
    return num_final_tries(scoreboard_.row(member)) == 0;
  });
  const bool is_over = !is_first_round && (is_settled_by_finals() || is_time_over());
  if (!is_over && turns_.empty()) {
    turns_ = in_turn(choose_finalists());
    std::ranges::reverse(turns_);
    if (have_finals_ended()) return std::nullopt;
  }
  if (is_over || turns_.empty()) {
    scoreboard_.end_finals();
    return std::nullopt;
  }
  const std::size_t member = turns_.back();
  if (time_left_s < duration_s(member)) {
    turns_.clear();
    end_without_time(duration_s(member));
    return std::nullopt;
  }
  turns_.pop_back();
  return RunAgain{member, RepeatKind::final_round, rounds_of(member) + 1};
}

/// Before a round has ended nothing is known of what it will say.
bool RunAgainPolicy::is_next_round_likely() const {
  const auto& verdict = scoreboard_.verdict();
  const auto place =
      verdict && scoreboard_.best() ? verdict->place_of(*scoreboard_.best()) : std::nullopt;
  return place && verdict->chance_near_best(*place) < scoreboard_.policy().repeating.chance_ahead;
}

std::vector<RunAgain> RunAgainPolicy::next_round(double time_left_s) {
  if (!scoreboard_.best() || end_if_complete()) return {};
  const std::vector<std::size_t> running = under_way();
  const bool is_ahead = !running.empty();
  if (!is_ahead)
    if (auto rerun = next_rerun(time_left_s)) return {std::move(*rerun)};
  if (have_finals_ended()) return {};
  scoreboard_.judge();
  if (is_ahead && (!is_next_round_likely() || is_time_over())) return {};
  const bool is_over = !is_ahead && has_begun() && (is_settled_by_finals() || is_time_over());
  const std::vector<std::size_t> finalists =
      is_over ? std::vector<std::size_t>{} : choose_finalists();
  if (have_finals_ended()) return {};
  if (finalists.empty()) {
    if (!is_ahead) scoreboard_.end_finals();
    return {};
  }
  // The likeliest ones are compared where the time does for these alone.
  const double slice_share = scoreboard_.policy().repeating.slice_of_turns;
  std::vector<std::size_t> fitting;
  double needed_s = 0;
  for (const std::size_t member : running) needed_s += duration_s(member);
  for (const std::size_t member : finalists) {
    needed_s += duration_s(member);
    if (needed_s > time_left_s) break;
    fitting.push_back(member);
  }
  const std::size_t least = has_begun() ? std::min<std::size_t>(2, finalists.size()) : 1;
  if (fitting.size() < least) {
    if (!is_ahead) end_without_time(duration_s(finalists.front()));
    return {};
  }
  std::vector<RunAgain> round;
  for (const std::size_t member : in_turn(std::move(fitting))) {
    asked_rounds_[member] = rounds_of(member) + 1;
    round.push_back({.member = member,
                     .kind = RepeatKind::final_round,
                     .round = asked_rounds_[member],
                     .slice_share = slice_share});
  }
  return round;
}

}  // namespace dstune
