#include "dstune/ranking/run_again.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "dstune/base/error.hpp"
#include "dstune/base/text.hpp"

namespace dstune {

namespace {

/// Runs of a round of finals where all rounds are gone through, and the shares of that in which
/// four of five finals end.
constexpr double usual_runs_of_round = 3.3, results_a_finalist = 4;
constexpr double usual_low = 0.4, usual_high = 1.7;
/// The part that finals go through of the rounds that are left; and the ends in which four of five
/// have it.
constexpr double usual_part = 0.75, usual_part_low = 0.1, usual_part_high = 1.3;

double seconds_between(std::chrono::system_clock::time_point from,
                       std::chrono::system_clock::time_point until) {
  return std::chrono::duration<double>(until - from).count();
}

/// How long something of the search ran, pauses between jobs aside.
double search_s(const Scoreboard& scoreboard) {
  using Time = std::chrono::system_clock::time_point;
  std::vector<std::pair<Time, Time>> spans;
  scoreboard.visit_run([&](std::size_t, const Row& row) {
    spans.emplace_back(row.record->started_at, row.record->finished_at);
    for (const Repeat& repeat : row.repeats)
      if (repeat.kind == RepeatKind::spread)
        spans.emplace_back(repeat.started_at, repeat.finished_at);
  });
  std::ranges::sort(spans);
  double sum_s = 0;
  Time covered = Time::min();
  for (const auto& [from, until] : spans) {
    if (until <= covered) continue;
    sum_s += seconds_between(std::max(from, covered), until);
    covered = until;
  }
  return sum_s;
}

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
    : scoreboard_(scoreboard), options_(std::move(options)) {
  scoreboard_.rows().visit_open([&](std::size_t member, const Row& row) {
    for (const Repeat& repeat : row.repeats)
      if (repeat.kind == RepeatKind::spread) ++spread_runs_[member];
    if (num_final_tries(row) > 0) scoreboard_.join_finals({member});
  });
}

double RunAgainPolicy::duration_s(std::size_t member) const {
  const Record& record = *scoreboard_.row(member).record;
  return seconds_between(record.started_at, record.finished_at);
}

/// Every reported interval needs to know how much runs differ; and what races is compared with the
/// best, for which a lucky run must not stand.
std::optional<RunAgain> RunAgainPolicy::during_search(double time_left_s) {
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
  if (options_.is_complete) {
    if (!scoreboard_.verdict()) scoreboard_.judge();
    scoreboard_.end_finals();
    return std::nullopt;
  }
  if (auto rerun = next_rerun(time_left_s)) return rerun;
  return next_in_finals(time_left_s);
}

std::optional<RunAgain> RunAgainPolicy::next_rerun(double time_left_s) {
  const double best = scoreboard_.ranked_value(*scoreboard_.best())->value;
  for (std::size_t member = 0; member < scoreboard_.rows().size(); ++member) {
    if (!scoreboard_.has_run(member)) continue;
    const auto& record = scoreboard_.row(member).record;
    if (record->measurement.status != Status::raced_out || record->is_alone || is_rerun(member))
      continue;
    const auto value = value_so_far(record->measurement, scoreboard_.metric(), record->experiment,
                                    StepEstimate::mean, scoreboard_.policy().intervals);
    if (!value || std::abs(scoreboard_.in_target(member, *value).value / best - 1) >
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

/// The order A B C C B A: slow changes of the machine are the same for all.
std::vector<std::size_t> RunAgainPolicy::turns_of_next_round() const {
  std::vector<std::size_t> turns = contenders(scoreboard_);
  std::erase_if(turns, [&](std::size_t member) {
    const auto died = options_.deaths.find(member);
    return died != options_.deaths.end() &&
           died->second >= scoreboard_.policy().repeating.deaths_until_left_out;
  });
  int rounds = 0;
  for (const std::size_t member : turns)
    rounds = std::max(rounds, num_final_tries(scoreboard_.row(member)));
  std::ranges::sort(turns);
  // The next one stands last.
  if (rounds % 2 == 0) std::ranges::reverse(turns);
  return turns;
}

bool RunAgainPolicy::is_time_over() const {
  int rounds = 0;
  double spent_s = 0;
  scoreboard_.rows().visit_open([&](std::size_t, const Row& row) {
    rounds = std::max(rounds, num_final_tries(row));
    for (const Repeat& repeat : row.repeats)
      if (repeat.kind == RepeatKind::final_round)
        spent_s += seconds_between(repeat.started_at, repeat.finished_at);
  });
  const Policy::Repeating& policy = scoreboard_.policy().repeating;
  if (spent_s >= policy.longest_finals_s) return true;
  return (rounds >= options_.rounds.count || spent_s >= options_.rounds.longest_s) &&
         spent_s >= policy.share_of_search * search_s(scoreboard_);
}

double RunAgainPolicy::usual_final_s() const {
  constexpr std::size_t few = 3;
  const std::vector<std::size_t> best = scoreboard_.best_members(few);
  double sum_s = 0;
  for (const std::size_t member : best) sum_s += duration_s(member);
  return best.empty() ? 0 : sum_s / static_cast<double>(best.size());
}

/// Before finals have begun it is as many as finals of fifteen recorded jobs took, on a machine
/// that others used. Afterwards it is a part of what is left where nothing is settled before its
/// time.
ExpectedRuns RunAgainPolicy::expected_finals(double search_s) const {
  const Policy::Repeating& policy = scoreboard_.policy().repeating;
  const Finals& finals = scoreboard_.finals();
  if (finals.is_done || !finals.reason.empty() || options_.is_complete ||
      options_.is_alone_in_space)
    return {};
  const double run_s = usual_final_s();
  int rounds = 0, begun = 0;
  scoreboard_.rows().visit_open([&](std::size_t, const Row& row) {
    rounds = std::max(rounds, num_final_tries(row));
    begun += num_final_tries(row);
  });
  const auto at_most = [&](double longest_s, double count) {
    return run_s > 0 ? std::min(count, std::max(1.0, longest_s / run_s)) : count;
  };
  if (begun == 0) {
    // Few may be the best if few members ran to their end.
    const double of_round =
        std::clamp(static_cast<double>(scoreboard_.num_results()) / results_a_finalist,
                   static_cast<double>(policy.min_finalists), usual_runs_of_round);
    const double likely = at_most(options_.rounds.longest_s, of_round * options_.rounds.count);
    return {likely, usual_low * likely, usual_high * likely};
  }
  const auto num_finalists = static_cast<double>(contenders(scoreboard_).size());
  const double of_rounds = num_finalists * std::max(0, options_.rounds.count - rounds);
  const double of_share =
      run_s > 0 ? policy.share_of_search * search_s / run_s - static_cast<double>(begun) : 0;
  const double longest =
      at_most(policy.longest_finals_s, std::max({of_rounds, of_share, num_finalists / 2}));
  return {usual_part * longest, usual_part_low * longest, usual_part_high * longest};
}

std::optional<RunAgain> RunAgainPolicy::next_in_finals(double time_left_s) {
  if (scoreboard_.finals().is_done || !scoreboard_.finals().reason.empty()) return std::nullopt;
  scoreboard_.judge();
  const auto has_begun = [&] {
    bool is_any = false;
    scoreboard_.rows().visit_open(
        [&](std::size_t, const Row& row) { is_any |= num_final_tries(row) > 0; });
    return is_any;
  };
  // A first round is gone through, so that at least two are compared.
  const bool is_first_round = !has_begun() || std::ranges::any_of(turns_, [&](std::size_t member) {
    return num_final_tries(scoreboard_.row(member)) == 0;
  });
  // A best member that was not measured again is not settled, whatever the model makes of its one
  // run.
  const bool is_settled_here =
      is_settled(scoreboard_) &&
      (!scoreboard_.best() || num_final_tries(scoreboard_.row(*scoreboard_.best())) > 0);
  const bool is_over = !is_first_round && (is_settled_here || is_time_over());
  if (!is_over && turns_.empty()) {
    turns_ = turns_of_next_round();
    if (std::string reason = no_finals_reason(turns_); !reason.empty() && !has_begun()) {
      scoreboard_.give_up_finals(std::move(reason));
      return std::nullopt;
    }
    scoreboard_.join_finals(turns_);
  }
  if (is_over || turns_.empty()) {
    scoreboard_.end_finals();
    return std::nullopt;
  }
  const std::size_t member = turns_.back();
  if (time_left_s < duration_s(member)) {
    turns_.clear();
    if (has_begun())
      scoreboard_.end_finals();
    else
      scoreboard_.give_up_finals("the time limit leaves less than the " +
                                 format_duration(duration_s(member)) + " that a run takes");
    return std::nullopt;
  }
  turns_.pop_back();
  return RunAgain{member, RepeatKind::final_round, num_final_tries(scoreboard_.row(member)) + 1};
}

}  // namespace dstune
