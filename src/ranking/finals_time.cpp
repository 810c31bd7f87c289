// The time of runs that are made again: how long they took, when it is enough, how many may follow.
#include <algorithm>
#include <chrono>
#include <utility>

#include "dstune/ranking/run_again.hpp"

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

using Time = std::chrono::system_clock::time_point;
using Spans = std::vector<std::pair<Time, Time>>;

/// How long any of them went on, pauses between jobs aside. Runs that take turns last as long as
/// one of them.
double covered_s(Spans spans) {
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

void add_repeats(const Row& row, bool of_finals, Spans& spans) {
  for (const Repeat& repeat : row.repeats)
    if ((repeat.kind == RepeatKind::final_round) == of_finals)
      spans.emplace_back(repeat.started_at, repeat.finished_at);
}

}  // namespace

double RunAgainPolicy::search_s(const Scoreboard& scoreboard) {
  Spans spans;
  scoreboard.visit_run([&](std::size_t, const Row& row) {
    spans.emplace_back(row.record->started_at, row.record->finished_at);
    add_repeats(row, false, spans);
  });
  return covered_s(std::move(spans));
}

double RunAgainPolicy::duration_s(std::size_t member) const {
  const Record& record = *scoreboard_.row(member).record;
  return seconds_between(record.started_at, record.finished_at);
}

bool RunAgainPolicy::is_time_over() {
  int rounds = 0;
  Spans finals;
  for (const std::size_t member : scoreboard_.repeated()) {
    rounds = std::max(rounds, rounds_of(member));
    add_repeats(scoreboard_.row(member), true, finals);
  }
  const double spent_s = covered_s(std::move(finals));
  const Policy::Repeating& policy = scoreboard_.policy().repeating;
  if (spent_s >= policy.longest_finals_s) return true;
  if (rounds < options_.rounds.count && spent_s < options_.rounds.longest_s) return false;
  forget_if_more_ended();
  if (!search_s_) search_s_ = search_s(scoreboard_);
  return spent_s >= policy.share_of_search * *search_s_;
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
  for (const std::size_t member : scoreboard_.repeated()) {
    rounds = std::max(rounds, rounds_of(member));
    begun += rounds_of(member);
  }
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

}  // namespace dstune
