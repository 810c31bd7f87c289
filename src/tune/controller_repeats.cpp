// What was measured is measured again: the best one during the search, to see how much runs differ;
// what was raced out beside a neighbour; the finalists, alone (docs/measuring.md).
#include <algorithm>
#include <cmath>
#include <limits>

#include "dstune/base/units.hpp"
#include "dstune/report/validation.hpp"
#include "dstune/tune/controller.hpp"
#include "steady_time.hpp"

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

}  // namespace

Controller::Ticket Controller::ticket_of(std::size_t id) const {
  const std::size_t members = space_.members.size();
  return id < members ? Ticket{id, std::nullopt, 0} : tickets_[id - members];
}

void Controller::submit_repeat(std::size_t index, RepeatKind kind, int round,
                               const std::vector<int>& avoid) {
  tickets_.push_back({index, kind, round});
  const PlannedExperiment& planned = space_.members[index].planned;
  scheduler_.submit(space_.members.size() + tickets_.size() - 1,
                    needs_of(planned.experiment, planned.predicted), avoid);
}

double Controller::duration_s(std::size_t index) const {
  const Record& record = *report_.rows[index].record;
  return std::chrono::duration<double>(record.finished_at - record.started_at).count();
}

double Controller::time_left_s() const {
  if (!options_.end_at) return std::numeric_limits<double>::infinity();
  return seconds(*options_.end_at - Clock::now());
}

void Controller::record_repeat(std::size_t index, Repeat repeat) {
  Row& row = report_.rows[index];
  journal_.add(event::repeated(keys_[index], row.planned.experiment.name, repeat));
  progress_.repeated(row.planned.experiment, repeat, options_.metric);
  row.repeats.push_back(std::move(repeat));
  report_.half_width_of_run = half_width_of_run(report_);
  if (index == best_)
    for (const auto& [number, attempt] : running_) send_bar(number, attempt);
}

/// Every reported interval needs to know how much runs differ; and what races is compared with the
/// best, for which a lucky run must not stand.
void Controller::repeat_best() {
  if (!options_.repeats_best || !best_) return;
  // A grid is asked for at once, and then measured.
  const bool is_measuring =
      !options_.races && std::any_of(running_.begin(), running_.end(),
                                     [](const auto& one) { return !one.second.repeat; });
  if (is_search_over() && !is_measuring) return;
  if (num_results_ < results_before_repeats) return;
  int total = 0;
  for (const auto& [index, count] : spread_runs_) total += count;
  int& own = spread_runs_[*best_];
  if (own >= repeats_of_best ||
      total >= repeats_at_first + static_cast<int>(num_results_ / results_a_repeat) ||
      time_left_s() < runs_left * duration_s(*best_))
    return;
  ++own;
  submit_repeat(*best_, RepeatKind::spread, own,
                report_.rows[*best_].record->measurement.world_ranks);
}

/// All that the tuner wanted has ended. Starts what is to be run once more, one run at a time, so
/// that it is alone; false where nothing is left.
bool Controller::measure_again() {
  return rerun_one() || run_final_round();
}

bool Controller::rerun_one() {
  if (!best_) return false;
  const auto best = ranked_value(report_, report_.rows[*best_]);
  if (!best) return false;
  for (std::size_t index = 0; index < report_.rows.size(); ++index) {
    const auto& record = report_.rows[index].record;
    if (!record || record->measurement.status != Status::raced_out || record->is_alone ||
        reruns_.contains(index))
      continue;
    const GroupShape& shape = record->experiment.shape;
    const auto value =
        value_so_far(record->measurement, options_.metric,
                     global_batch(record->experiment.config, shape.size()), shape.size());
    if (!value || std::abs(value->value / best->value - 1) > close_to_best) continue;
    if (time_left_s() < 2 * duration_s(*best_)) continue;
    reruns_.insert(index);
    tries_[index] = record->attempt;
    scheduler_.submit(index, needs_of(record->experiment, space_.members[index].planned.predicted));
    return true;
  }
  return false;
}

/// Empty where the finalists are to be measured again.
std::string Controller::why_not_again() const {
  const std::vector<std::size_t>& finalists = report_.validation.finalists;
  if (finalists.empty()) return "the job died in it twice";
  if (num_results_ < 2 && !(options_.races && space_.planned > 1))
    return "there is nothing to compare it with";
  if (!options_.races && finalists.size() == 1 && report_.rows[finalists[0]].record->is_alone)
    return "it ran alone, and no other comes near";
  return "";
}

/// A B C A B C …: whatever changes slowly on the machine changes for all.
bool Controller::run_final_round() {
  Validation& validation = report_.validation;
  if (!best_ || validation.is_done || !validation.reason.empty()) return false;
  if (validation.finalists.empty()) {
    validation.finalists = finalists(report_);
    std::erase_if(validation.finalists, [&](std::size_t index) {
      const auto died = history_.repeat_deaths.find(keys_[index]);
      return died != history_.repeat_deaths.end() && died->second >= deaths_until_left_out;
    });
    validation.reason = why_not_again();
    if (!validation.reason.empty()) return false;
  }
  if (const auto next = next_final_run(report_)) {
    const bool is_needed = next->round <= least_final_rounds;
    double needed_s = duration_s(next->index);
    if (is_needed) {
      needed_s = 0;
      for (const std::size_t index : validation.finalists)
        needed_s += (least_final_rounds - next->round + 1) * duration_s(index);
    }
    const bool is_within_round = is_needed && next->index != validation.finalists.front();
    if (is_within_round || time_left_s() >= needed_s) {
      submit_repeat(next->index, RepeatKind::final_round, next->round, {});
      return true;
    }
    if (is_needed) {
      validation.reason =
          "the time limit leaves less than the " + format_duration(needed_s) + " that it takes";
      return false;
    }
  }
  validation.is_done = true;
  best_ = best_row(report_);
  answer_ = answer_row(report_, *best_);
  return false;
}

}  // namespace dstune
