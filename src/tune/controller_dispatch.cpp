// What runs next: asks the tuner, answers from the journal, and gives the rest to groups.
#include <algorithm>

#include "dstune/tune/controller.hpp"
#include "prediction.hpp"
#include "steady_time.hpp"

namespace dstune {
namespace {

/// Jobs in a row that died while an experiment was running, after which it is not tried again.
constexpr int deaths_until_failed = 2;

}  // namespace

/// Takes experiments from the tuner into the queue; known ones are answered from the journal.
void Controller::feed() {
  if (stopping_since_) return;
  repeat_best();
  while (!options_.is_search_complete && scheduler_.num_waiting() < most_waiting()) {
    const std::optional<std::size_t> index = tuner_.next();
    if (!index) break;
    note_taken(*index);
    if (adopt(*index)) continue;
    const PlannedExperiment& planned = space_.members[*index].planned;
    scheduler_.submit(*index, needs_of(planned.experiment, planned.predicted));
  }
  for (const std::size_t id : scheduler_.take_impossible()) {
    const RunAgain run = run_of(id);
    if (run.kind) {
      board_.give_up_finals("too many ranks were lost for its group size");
      continue;
    }
    short_of_ranks_ = true;
    board_.leave_out(run.row,
                     "too many ranks were lost, or bytes of hosts and disks with them, for what it "
                     "needs");
    tuner_.observe(run.row, {Status::failed, std::nullopt});
  }
}

/// One that learns is asked when there is room for what it may answer.
std::size_t Controller::most_waiting() const {
  if (tuner_.most_waiting() > 0) return tuner_.most_waiting();
  // Where nothing runs no rank will become idle by itself: what can not be placed is to be told.
  const bool is_asked =
      running_.empty() || std::any_of(num_left_.begin(), num_left_.end(), [&](const auto& left) {
        return scheduler_.has_room(Needs{left.first});
      });
  return is_asked ? 1 : 0;
}

/// The tuner will not ask for it again.
void Controller::note_taken(std::size_t index) {
  const auto left = num_left_.find(board_.row(index).planned.experiment.shape);
  if (left != num_left_.end() && --left->second == 0) num_left_.erase(left);
}

bool Controller::adopt(std::size_t index) {
  if (board_.row(index).planned.status != PlanStatus::planned) {
    tuner_.observe(index, {Status::out_of_memory, std::nullopt});
    return true;
  }
  const std::string& key = keys_[index];
  if (const auto known = history_.finished.find(key); known != history_.finished.end()) {
    Record old = known->second;
    old.experiment = space_.members[index].planned.experiment;
    record(index, std::move(old), true);
    return true;
  }
  if (const auto died = history_.deaths.find(key);
      died != history_.deaths.end() && died->second >= deaths_until_failed) {
    Record failed;
    failed.experiment = space_.members[index].planned.experiment;
    failed.predicted = board_.row(index).planned.predicted;
    failed.attempt = died->second;
    failed.measurement.status = Status::failed;
    failed.measurement.reason =
        "was running when the job died, the last " + std::to_string(died->second) + " times";
    failed.started_at = failed.finished_at = std::chrono::system_clock::now();
    record(index, std::move(failed), false);
    return true;
  }
  return false;
}

/// Starts what there is room for; whether there was anything.
bool Controller::dispatch() {
  if (stopping_since_) return false;
  bool has_started = false;
  while (auto next = scheduler_.next()) {
    start(std::move(*next));
    has_started = true;
  }
  return has_started;
}

void Controller::start(Scheduler::Dispatch next) {
  const RunAgain run = run_of(next.experiment);
  const std::size_t index = run.row;
  const Experiment& experiment = space_.members[index].planned.experiment;
  const std::uint64_t number = next_attempt_++;
  Attempt attempt;
  attempt.index = index;
  attempt.repeat = run.kind;
  attempt.round = run.round;
  if (!run.kind) attempt.try_number = ++tries_[index];
  if (const auto died = history_.deaths.find(keys_[index]); died != history_.deaths.end()) {
    attempt.try_number += died->second;
  }
  attempt.reservation = std::move(next.reservation);
  attempt.last_sign = Clock::now();
  const double patience_s = options_.patience_s(space_.members[index].planned);
  if (options_.rest_s) attempt.rest_s = options_.rest_s(space_.members[index].planned);
  if (options_.trial_timeout_s) {
    attempt.timeout_s = *options_.trial_timeout_s;
  } else if (options_.default_timeout_s) {
    attempt.timeout_s = options_.default_timeout_s(experiment);
  }
  attempt.give_up_at = attempt.timeout_s > 0 ? attempt.last_sign + to_duration(attempt.timeout_s)
                                             : Clock::time_point::max();
  if (run.kind) {
    journal_.add(event::repeat_started(keys_[index], experiment.name, *run.kind, run.round,
                                       attempt.reservation.world_ranks()));
  } else {
    predict(index);
    journal_.add(event::started(keys_[index], experiment.name, attempt.try_number,
                                attempt.reservation.world_ranks()));
    dispatched_.push_back(index);
  }
  progress_.started(experiment);
  // Members give up by themselves long after ABORT should have reached them.
  const double timeout_s = attempt.timeout_s > 0 ? attempt.timeout_s : 24 * 3600.0;
  const double member_timeout_s = timeout_s + patience_s + 2 * options_.abort_grace_s;
  const std::string ds_config =
      options_.sends_ds_config ? experiment.ds_config.dump() : std::string();
  // What was only raced out beside a neighbour is no risk.
  const bool is_risky = attempt.try_number > 1 && !again_.is_rerun(index);
  for (const int member : attempt.reservation.world_ranks()) {
    send(member, message::Assign{number, experiment.name, experiment.config,
                                 attempt.reservation.world_ranks(), member_timeout_s, ds_config,
                                 is_risky, attempt.rest_s});
  }
  send_bar(number, attempt);
  attempt.is_alone = running_.empty();
  for (auto& [other, neighbour] : running_) {
    neighbour.is_alone = false;
    if ((attempt.has_nodes || neighbour.has_nodes) &&
        scheduler_.share_a_node(attempt.reservation, neighbour.reservation))
      attempt.has_nodes = neighbour.has_nodes = false;
  }
  running_.emplace(number, std::move(attempt));
}

void Controller::predict(std::size_t index) {
  const PlannedExperiment& planned = board_.row(index).planned;
  if (options_.predictor == nullptr || planned.status != PlanStatus::planned) return;
  board_.predict(index, options_.predictor->throughput(planned.experiment));
}

/// What the best so far means for this challenger. What is measured again is measured fully.
void Controller::send_bar(std::uint64_t number, const Attempt& attempt) {
  // Calibrated times are another order than those that are raced.
  if (!options_.races || !board_.best() || !options_.own_runs.empty()) return;
  if (attempt.repeat || again_.is_rerun(attempt.index)) return;
  const Experiment& challenger = space_.members[attempt.index].planned.experiment;
  send(attempt.reservation.world_ranks().front(),
       message::Bar{number, race_bar(board_, challenger)});
}

}  // namespace dstune
