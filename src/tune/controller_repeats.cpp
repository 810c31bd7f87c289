// What was measured is measured again, as the policy says.
#include <algorithm>
#include <limits>

#include "dstune/tune/controller.hpp"
#include "steady_time.hpp"

namespace dstune {

/// A member's first run, or what an id behind the members' stands for.
RunAgain Controller::run_of(std::size_t id) const {
  const std::size_t members = space_.members.size();
  return id < members ? RunAgain{id} : repeats_[id - members];
}

void Controller::submit_again(const RunAgain& again) {
  const PlannedExperiment& planned = space_.members[again.row].planned;
  const Needs needs = needs_of(planned.experiment, planned.predicted);
  if (!again.kind) {
    tries_[again.row] = board_.row(again.row).record->attempt;
    scheduler_.submit(again.row, needs);
    return;
  }
  repeats_.push_back(again);
  scheduler_.submit(space_.members.size() + repeats_.size() - 1, needs, again.avoided_ranks);
}

double Controller::time_left_s() const {
  if (!options_.end_at) return std::numeric_limits<double>::infinity();
  return seconds(*options_.end_at - Clock::now());
}

void Controller::record_repeat(std::size_t index, Repeat repeat) {
  const Experiment& experiment = space_.members[index].planned.experiment;
  journal_.add(event::repeated(keys_[index], experiment.name, repeat));
  progress_.repeated(experiment, repeat, options_.metric);
  board_.repeat(index, std::move(repeat));
  if (index == board_.best())
    for (const auto& [number, attempt] : running_) send_bar(number, attempt);
}

void Controller::repeat_best() {
  // A grid is asked for at once, and then measured.
  const bool is_measuring =
      !options_.races && std::any_of(running_.begin(), running_.end(),
                                     [](const auto& one) { return !one.second.repeat; });
  if (is_search_over() && !is_measuring) return;
  if (const auto again = again_.during_search(time_left_s())) submit_again(*again);
}

/// All that the tuner wanted has ended. Starts what is to be run once more, one run at a time, so
/// that it is alone; false where nothing is left.
bool Controller::measure_again() {
  const auto again = again_.after_search(time_left_s());
  if (again) submit_again(*again);
  return again.has_value();
}

}  // namespace dstune
