#include "dstune/ranking/run_again.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "dstune/base/error.hpp"
#include "dstune/base/text.hpp"

namespace dstune {

namespace {

/// During the search: from so many results on the best one is run so often again, and in all no
/// more than so often and once for every tenth result.
constexpr std::size_t results_before_repeats = 5;
constexpr int repeats_of_best = 2;
constexpr int repeats_at_first = 2;
constexpr std::size_t results_a_repeat = 10;
/// … while so many runs of it fit the time that is left.
constexpr double runs_left = 20;
/// What was raced out beside a neighbour this close to the best is run again.
constexpr double close_to_best = 0.05;
/// Jobs that died while a finalist was measured again, after which it is not.
constexpr int deaths_until_left_out = 2;
/// More than this is worth another run (design 7).
constexpr double relevant_gain = 0.01;

int num_final_tries(const Row& row) {
  return static_cast<int>(std::ranges::count(row.repeats, RepeatKind::final_round, &Repeat::kind));
}

/// The finalist that is best so far, and those that are more than 1 % better with a chance of 5 %
/// or more; in their order. None where every run of all failed.
std::vector<std::size_t> contenders(const Scoreboard& board) {
  const double sign = is_minimised(board.metric()) ? -1 : 1;
  struct Standing {
    std::size_t row;
    double score;
    int count;
  };
  std::vector<Standing> standings;
  for (const std::size_t row : board.finals().finalists) {
    const auto value = board.final_value(row, board.metric());
    if (!value) continue;
    standings.push_back({row, sign * std::log(board.in_target(row, *value).value),
                         num_final_rounds(board.row(row))});
  }
  if (standings.empty()) return {};
  const Standing leader = *std::ranges::max_element(standings, {}, &Standing::score);
  const Spread spread = pooled_spread(board.spread_of_finals());
  // Both sides of 90 % are 5 % each.
  const double reach = spread.deviation * student_t(0.9, spread.degrees_of_freedom);
  std::vector<std::size_t> result;
  for (const Standing& one : standings) {
    const double error = reach * std::sqrt(1.0 / one.count + 1.0 / leader.count);
    if (one.row == leader.row || one.score + error > leader.score + std::log1p(relevant_gain))
      result.push_back(one.row);
  }
  if (result.size() == 1 && leader.count >= final_rounds) return {};
  return result;
}

}  // namespace

std::vector<std::size_t> finalists(const Scoreboard& board) {
  constexpr std::size_t looked_at = 20;
  require(!board.finals().is_done, "finalists are chosen by their first runs");
  std::vector<std::size_t> best = board.best_rows(looked_at);
  if (best.empty()) return best;
  const Spread spread = pooled_spread(board.spread_in_search());
  // Of a difference of two runs.
  const double runs =
      std::sqrt(2.0) * spread.deviation * student_t(0.95, spread.degrees_of_freedom);
  const MetricValue winner = *board.ranked_value(best.front());
  const auto is_clearly_behind = [&](std::size_t row) {
    const MetricValue value = *board.ranked_value(row);
    const double behind = std::abs(std::log(value.value / winner.value));
    return behind > std::hypot(half_width(value), half_width(winner), runs);
  };
  best.erase(std::remove_if(best.begin() + 1, best.end(), is_clearly_behind), best.end());
  best.resize(std::min(best.size(), max_finalists));
  return best;
}

std::optional<RunAgain> next_final_run(const Scoreboard& board) {
  require(!board.finals().is_done, "there are no runs after the last one");
  for (int round = 1; round <= max_final_rounds; ++round) {
    for (const std::size_t row :
         round <= min_final_rounds ? board.finals().finalists : contenders(board))
      if (num_final_tries(board.row(row)) < round)
        return RunAgain{row, RepeatKind::final_round, round};
  }
  return std::nullopt;
}

RunAgainPolicy::RunAgainPolicy(Scoreboard& board, Options options)
    : board_(board), options_(std::move(options)) {
  for (std::size_t row = 0; row < board_.rows().size(); ++row)
    for (const Repeat& repeat : board_.row(row).repeats)
      if (repeat.kind == RepeatKind::spread) ++spread_runs_[row];
}

double RunAgainPolicy::duration_s(std::size_t row) const {
  const Record& record = *board_.row(row).record;
  return std::chrono::duration<double>(record.finished_at - record.started_at).count();
}

/// Every reported interval needs to know how much runs differ; and what races is compared with the
/// best, for which a lucky run must not stand.
std::optional<RunAgain> RunAgainPolicy::during_search(double time_left_s) {
  const auto best = board_.best();
  if (!options_.repeats_best || !best) return std::nullopt;
  if (board_.num_results() < results_before_repeats) return std::nullopt;
  int total = 0;
  for (const auto& [row, count] : spread_runs_) total += count;
  int& own = spread_runs_[*best];
  if (own >= repeats_of_best ||
      total >= repeats_at_first + static_cast<int>(board_.num_results() / results_a_repeat) ||
      time_left_s < runs_left * duration_s(*best))
    return std::nullopt;
  ++own;
  return RunAgain{*best, RepeatKind::spread, own,
                  board_.row(*best).record->measurement.world_ranks};
}

std::optional<RunAgain> RunAgainPolicy::after_search(double time_left_s) {
  if (!board_.best()) return std::nullopt;
  if (auto rerun = next_rerun(time_left_s)) return rerun;
  return next_in_finals(time_left_s);
}

std::optional<RunAgain> RunAgainPolicy::next_rerun(double time_left_s) {
  const double best = board_.ranked_value(*board_.best())->value;
  for (std::size_t row = 0; row < board_.rows().size(); ++row) {
    const auto& record = board_.row(row).record;
    if (!record || record->measurement.status != Status::raced_out || record->is_alone ||
        is_rerun(row))
      continue;
    const auto value = value_so_far(record->measurement, board_.metric(), record->experiment);
    if (!value || std::abs(board_.in_target(row, *value).value / best - 1) > close_to_best)
      continue;
    if (time_left_s < 2 * duration_s(*board_.best())) continue;
    reruns_.insert(row);
    return RunAgain{row};
  }
  return std::nullopt;
}

/// Empty where the finalists are to be measured again.
std::string RunAgainPolicy::no_finals_reason() const {
  const std::vector<std::size_t>& finalists = board_.finals().finalists;
  if (finalists.empty()) return "the job died in it twice";
  if (board_.num_results() < 2 && (!options_.races || options_.is_alone_in_space))
    return "there is nothing to compare it with";
  if (!options_.races && finalists.size() == 1 && board_.row(finalists[0]).record->is_alone)
    return "it ran alone, and no other comes near";
  return "";
}

/// A B C A B C …: whatever changes slowly on the machine changes for all.
std::optional<RunAgain> RunAgainPolicy::next_in_finals(double time_left_s) {
  const Finals& finals = board_.finals();
  if (finals.is_done || !finals.reason.empty()) return std::nullopt;
  if (finals.finalists.empty()) {
    std::vector<std::size_t> chosen = finalists(board_);
    std::erase_if(chosen, [&](std::size_t row) {
      const auto died = options_.deaths.find(row);
      return died != options_.deaths.end() && died->second >= deaths_until_left_out;
    });
    board_.begin_finals(std::move(chosen));
    if (std::string reason = no_finals_reason(); !reason.empty()) {
      board_.give_up_finals(std::move(reason));
      return std::nullopt;
    }
  }
  if (const auto next = next_final_run(board_)) {
    const bool is_needed = next->round <= min_final_rounds;
    double needed_s = duration_s(next->row);
    if (is_needed) {
      needed_s = 0;
      for (const std::size_t row : finals.finalists)
        needed_s += (min_final_rounds - next->round + 1) * duration_s(row);
    }
    const bool is_within_round = is_needed && next->row != finals.finalists.front();
    if (is_within_round || time_left_s >= needed_s) return next;
    if (is_needed) {
      board_.give_up_finals("the time limit leaves less than the " + format_duration(needed_s) +
                            " that it takes");
      return std::nullopt;
    }
  }
  board_.end_finals();
  return std::nullopt;
}

}  // namespace dstune
