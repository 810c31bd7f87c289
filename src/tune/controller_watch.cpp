// Endings that nobody planned: signals, time limits, silence, losses.
#include <algorithm>

#include "dstune/base/log.hpp"
#include "dstune/base/units.hpp"
#include "dstune/tune/controller.hpp"
#include "steady_time.hpp"

namespace dstune {
namespace {

/// A measuring group whose steps take t gives a sign of life at least this often.
constexpr double steps_of_patience = 20;
constexpr int tries_after_loss = 2;
constexpr std::chrono::milliseconds dead_interval{200};

/// "rank 1", "ranks 1, 3"
std::string text_of(const std::set<int>& ranks) {
  std::string text;
  for (const int rank : ranks)
    text += (!text.empty() ? ", " : ranks.size() > 1 ? "ranks " : "rank ") + std::to_string(rank);
  return text;
}

}  // namespace

/// No new experiments; running ones end after their step.
void Controller::stop(const std::string& reason) {
  stopping_since_ = Clock::now();
  reason_ = reason + "; the same command resumes";
  log::warning("stopping early: " + reason_);
  scheduler_.drain();
  for (auto& [number, attempt] : running_) {
    if (attempt.state == Attempt::State::building) {
      abort(number, attempt, Status::timed_out, "stopped");
    } else if (attempt.state == Attempt::State::running) {
      attempt.state = Attempt::State::stopping;
      send(attempt.reservation.world_ranks().front(), message::Stop{number});
    } else if (attempt.state == Attempt::State::aborting) {
      attempt.give_up_at =
          std::min(attempt.give_up_at, *stopping_since_ + to_duration(options_.abort_grace_s));
    }
  }
  // mpirun may kill everything a second after the signal: what is known is written first.
  publish();
  finish();
  results_.write_exit_status(ExitCode::stopped_early, reason_);
}

double Controller::overdue_after_s(const Attempt& attempt) const {
  const double patience_s = options_.patience_s(space_.members[attempt.index].planned);
  return std::max(patience_s, steps_of_patience * attempt.slowest_step_s);
}

/// A member that is known to be gone without having said so.
std::optional<int> Controller::dead_member(const Attempt& attempt) const {
  if (!options_.is_dead) return std::nullopt;
  for (const int member : attempt.reservation.world_ranks()) {
    if (!attempt.left.contains(member) && options_.is_dead(member)) return member;
  }
  return std::nullopt;
}

/// Looks at signals, the time limit and every running attempt's deadlines.
void Controller::watch() {
  const Clock::time_point now = Clock::now();
  const int signals = options_.signals ? options_.signals() : 0;
  if (signals > 0 && !stopping_since_) stop("a signal to stop");
  if (options_.end_at && now >= *options_.end_at && !stopping_since_) stop("the time limit");
  const bool must_leave =
      stopping_since_ &&
      (signals > 1 || now - *stopping_since_ > to_duration(options_.stop_grace_s));

  const bool look_for_dead = now - looked_for_dead_at_ > dead_interval;
  if (look_for_dead) looked_for_dead_at_ = now;

  std::vector<std::uint64_t> aborted;
  for (auto& [number, attempt] : running_) {
    const std::optional<int> dead = look_for_dead ? dead_member(attempt) : std::nullopt;
    if (attempt.state == Attempt::State::aborting) {
      aborted.push_back(number);
    } else if (dead) {
      abort(number, attempt, Status::failed, "rank " + std::to_string(*dead) + " died");
    } else if (must_leave) {
      abort(number, attempt, Status::timed_out, "stopped");
    } else if (now > attempt.give_up_at) {
      const std::string limit = format_duration(attempt.timeout_s);
      abort(number, attempt, Status::timed_out,
            options_.trial_timeout_s
                ? "took longer than --trial-timeout " + limit
                : "took longer than " + limit +
                      ", many times what was predicted; --trial-timeout allows more");
    } else if (const double limit_s = overdue_after_s(attempt);
               seconds(now - attempt.last_sign) > limit_s) {
      abort(number, attempt, Status::timed_out, "no sign of life for " + format_duration(limit_s));
    }
  }
  for (const std::uint64_t number : aborted) conclude_aborted(number);
}

void Controller::abort(std::uint64_t number, Attempt& attempt, Status status,
                       const std::string& reason) {
  const GroupShape& shape = space_.members[attempt.index].planned.experiment.shape;
  abandoned_communicator_ = abandoned_communicator_ || shape.num_nodes > 1;
  attempt.state = Attempt::State::aborting;
  attempt.status = status;
  attempt.reason = reason;
  attempt.give_up_at =
      Clock::now() + to_duration(options_.abort_grace_s + (stopping_since_ ? 0 : attempt.rest_s));
  for (const int member : attempt.reservation.world_ranks()) {
    if (!attempt.left.contains(member)) send(member, message::Abort{number});
  }
}

/// Ends an aborted attempt once every member has answered or the grace is over: who did not is
/// lost, and of no further use like one that lost its device.
void Controller::conclude_aborted(std::uint64_t number) {
  const auto found = running_.find(number);
  if (found == running_.end()) return;
  Attempt& attempt = found->second;
  const std::vector<int> members = attempt.reservation.world_ranks();
  // Nobody waits for an answer of the dead.
  const bool all_answered = std::all_of(members.begin(), members.end(), [&](int member) {
    return attempt.left.contains(member) || (options_.is_dead && options_.is_dead(member));
  });
  if (!all_answered && Clock::now() < attempt.give_up_at) return;

  std::set<int> silent_ranks;
  for (const int member : members)
    if (!attempt.left.contains(member)) silent_ranks.insert(member);
  lost_.insert(silent_ranks.begin(), silent_ranks.end());
  std::vector<int> retired_ranks;
  for (const int member : members) {
    if (!silent_ranks.contains(member) && !attempt.without_device.contains(member) &&
        !attempt.silent_devices.contains(member))
      continue;
    attempt.reservation.retire(member);
    retired_ranks.push_back(member);
  }
  const std::size_t index = attempt.index;
  const Experiment& experiment = space_.members[index].planned.experiment;
  std::string reason = attempt.reason;
  if (!silent_ranks.empty()) reason += "; lost " + text_of(silent_ranks);
  if (!attempt.without_device.empty())
    reason += "; device lost by " + text_of(attempt.without_device);
  if (!attempt.silent_devices.empty())
    reason += "; no answer from the device of " + text_of(attempt.silent_devices);
  if (!retired_ranks.empty()) {
    const bool is_left = attempt.without_device.size() + attempt.silent_devices.size() > 0;
    log::warning(experiment.name + ": " + reason + ", not used again" +
                 (is_left ? "; what is held of a device is left to the end of its process" : ""));
  }
  if (attempt.repeat) {
    Repeat failed{
        *attempt.repeat, attempt.round, {}, attempt.started_at, std::chrono::system_clock::now(),
        attempt.is_alone};
    failed.measurement.status = attempt.status;
    failed.measurement.reason = reason;
    failed.measurement.world_ranks = members;
    if (attempt.started_at == std::chrono::system_clock::time_point{})
      failed.started_at = failed.finished_at;
    attempt.reservation.give_back();
    running_.erase(found);
    if (!stopping_since_) record_repeat(index, std::move(failed));
    return;
  }
  Record failed;
  failed.experiment = experiment;
  failed.predicted = board_.row(index).planned.predicted;
  failed.attempt = attempt.try_number;
  failed.measurement.status = attempt.status;
  failed.measurement.reason = reason;
  failed.measurement.world_ranks = members;
  failed.finished_at = std::chrono::system_clock::now();
  failed.started_at = attempt.started_at == std::chrono::system_clock::time_point{}
                          ? failed.finished_at
                          : attempt.started_at;
  attempt.reservation.give_back();
  running_.erase(found);
  if (stopping_since_) return;  // stopped on purpose: the same command runs it again
  if (!retired_ranks.empty() && tries_[index] < tries_after_loss) {
    journal_.add(event::lost(keys_[index], experiment.name, retired_ranks));
    scheduler_.resubmit(index, needs_of(experiment, space_.members[index].planned.predicted));
    return;
  }
  record(index, std::move(failed), false);
}

}  // namespace dstune
