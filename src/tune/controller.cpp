#include "dstune/tune/controller.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"
#include "dstune/search/calibration.hpp"
#include "dstune/tune/idle.hpp"
#include "dstune/tune/injection.hpp"
#include "prediction.hpp"
#include "race_bar.hpp"
#include "steady_time.hpp"

namespace dstune {
namespace {

/// Jobs in a row that died while an experiment was running, after which it is not tried again.
constexpr int deaths_until_failed = 2;
/// The answer is synced to disk, which may take long: in a burst of improvements not each of them.
constexpr std::chrono::milliseconds best_interval{500};

}  // namespace

Controller::Controller(const PlannedSpace& space, std::vector<std::string> keys,
                       const History& history, Tuner& tuner, SlotPool& slots, Mailbox& mailbox,
                       Journal& journal, ResultsFolder& results, Progress& progress,
                       ControllerOptions options)
    : space_(space),
      keys_(std::move(keys)),
      history_(history),
      tuner_(tuner),
      scheduler_(slots),
      mailbox_(mailbox),
      journal_(journal),
      results_(results),
      progress_(progress),
      options_(std::move(options)),
      next_attempt_(options_.first_attempt),
      began_(Clock::now()) {
  report_.metric = options_.metric;
  report_.own_row = space_.own;
  report_.own_runs = options_.own_runs;
  report_.memory_offset_bytes = options_.memory_offset_bytes;
  for (const PlannedMember& member : space_.members) {
    report_.rows.push_back({member.planned, std::nullopt, std::nullopt});
    if (member.planned.status == PlanStatus::planned) ++num_left_[member.planned.experiment.shape];
  }
  for (std::size_t index = 0; index < keys_.size(); ++index) {
    if (const auto known = history_.repeats.find(keys_[index]); known != history_.repeats.end()) {
      report_.rows[index].repeats = known->second;
      for (const Repeat& repeat : known->second)
        spread_runs_[index] += repeat.kind == RepeatKind::spread ? 1 : 0;
    }
    const auto known = history_.verified.find(keys_[index]);
    if (known == history_.verified.end()) continue;
    Row& row = report_.rows[index];
    row.verified = known->second;
    if (row.verified->status == Status::out_of_memory) {
      row.planned.status = PlanStatus::infeasible;
      row.planned.reason = row.verified->reason;
    }
  }
}

void Controller::predict(std::size_t index) {
  PlannedExperiment& planned = report_.rows[index].planned;
  if (options_.predictor == nullptr || planned.status != PlanStatus::planned) return;
  planned.predicted.throughput = options_.predictor->throughput(planned.experiment);
}

ExitCode Controller::run() {
  std::size_t known = 0;
  for (std::size_t i = 0; i < keys_.size(); ++i) {
    if (space_.members[i].planned.status == PlanStatus::planned) {
      known += history_.finished.count(keys_[i]);
    }
  }
  progress_.begin(space_.planned, known);
  // All that is known counts from the beginning: a tuner that learns might not ask for it again.
  for (std::size_t index = 0; index < keys_.size(); ++index)
    if (space_.members[index].planned.status == PlanStatus::planned &&
        history_.finished.contains(keys_[index])) {
      note_taken(index);
      adopt(index);
    }
  Idle idle;
  for (;;) {
    const bool heard = receive();
    watch();
    // One after the other where a tuner answers for as many ranks as are idle.
    do {
      feed();
    } while (dispatch());
    const bool said = publish();
    if (running_.empty() && scheduler_.num_waiting() == 0 &&
        (stopping_since_ || (is_search_over() && !measure_again()))) {
      break;
    }
    if (heard || said) {
      idle.reset();
    } else {
      idle.pause();
    }
  }
  finish();
  writer_.drain();
  if (stopping_since_) return ExitCode::stopped_early;
  if (short_of_ranks_) {
    reason_ = "too many ranks were lost for some group sizes";
    return ExitCode::stopped_early;
  }
  if (!best_) {
    reason_ = "no experiment succeeded; the summary has the reason of each";
    return ExitCode::nothing_feasible;
  }
  reason_ = "done";
  return ExitCode::ok;
}

/// One commit makes everything of this round durable; only then does anybody hear of it.
bool Controller::publish() {
  journal_.commit();
  for (const auto& [world_rank, message] : outbox_) mailbox_.send(world_rank, encode(message));
  const bool said = !outbox_.empty();
  outbox_.clear();
  for (const std::size_t index : dispatched_) {
    const Experiment& experiment = space_.members[index].planned.experiment;
    writer_.add([this, &experiment] { results_.write_experiment(experiment); });
  }
  dispatched_.clear();
  for (const std::size_t index : ended_) {
    const Record& record = *report_.rows[index].record;
    if (record.measurement.status == Status::raced_out && !record.is_alone) {
      held_.insert(index);
    } else {
      write_metrics(index);
    }
  }
  ended_.clear();
  if (answer_ != written_answer_ && (!said || Clock::now() - best_written_at_ > best_interval)) {
    write_best();
  }
  return said;
}

/// Once for each experiment, whose record is never touched again.
void Controller::write_metrics(std::size_t index) {
  held_.erase(index);
  const Record& record = *report_.rows[index].record;
  writer_.add([this, &record] { results_.write_metrics(record, options_.metric); });
}

void Controller::write_best() {
  if (answer_ == written_answer_) return;
  results_.write_optimal(report_.rows[*answer_], report_, options_.training_command,
                         options_.arg_mappings);
  results_.write_verification(report_, options_.training_command, options_.arg_mappings);
  written_answer_ = answer_;
  best_written_at_ = Clock::now();
}

bool Controller::is_search_over() const {
  return options_.is_search_complete || tuner_.is_done();
}

bool Controller::receive() {
  bool heard = false;
  while (auto received = mailbox_.try_receive()) {
    const Message message = decode(received->data);
    // After PROGRESS more of it follows, which can wait; attention would cost the rank beside.
    heard |= !std::holds_alternative<message::Progress>(message);
    handle(received->source, message);
  }
  return heard;
}

void Controller::handle(int source, const Message& message) {
  const std::uint64_t number = std::visit(
      [](const auto& m) -> std::uint64_t {
        if constexpr (requires { m.attempt; }) {
          return m.attempt;
        } else {
          return 0;
        }
      },
      message);
  const auto found = running_.find(number);
  if (found == running_.end()) return;
  Attempt& attempt = found->second;
  attempt.last_sign = Clock::now();

  if (std::holds_alternative<message::Ready>(message)) {
    attempt.ready.insert(source);
    if (attempt.state == Attempt::State::building &&
        attempt.ready.size() == attempt.reservation.world_ranks().size()) {
      attempt.state = Attempt::State::running;
      attempt.started_at = std::chrono::system_clock::now();
      for (const int member : attempt.reservation.world_ranks()) {
        send(member, message::Go{number});
      }
    }
  } else if (const auto* progress = std::get_if<message::Progress>(&message)) {
    attempt.slowest_step_s = progress->slowest_step_s;
    progress_.stepped(space_.members[attempt.index].planned.experiment.name, progress->steps);
  } else if (const auto* result = std::get_if<message::Outcome>(&message)) {
    if (attempt.state == Attempt::State::aborting) return;
    outcome(number, attempt, result->measurement);
  } else if (const auto* gone = std::get_if<message::Gone>(&message)) {
    attempt.left.insert(source);
    if (attempt.state != Attempt::State::aborting) {
      abort(number, attempt, gone->status, gone->reason);
      attempt.has_cause = gone->is_cause;
    } else if (gone->is_cause && !attempt.has_cause) {
      // Peers that saw it leave may have been heard first.
      attempt.status = gone->status;
      attempt.reason = gone->reason;
      attempt.has_cause = true;
    }
    conclude_aborted(number);
  }
}

void Controller::outcome(std::uint64_t number, Attempt& attempt, Measurement measurement) {
  // Whose energy it was can not be told.
  if (!attempt.has_nodes) measurement.energy_j.reset();
  const std::size_t index = attempt.index;
  if (injected_fault(0, space_.members[index].planned.experiment.name) ==
      Fault::throws_in_controller)
    throw Error("injected failure of the controller");
  const bool was_cut_short =
      attempt.state == Attempt::State::stopping && measurement.status == Status::raced_out;
  if (attempt.repeat) {
    Repeat repeat{*attempt.repeat,
                  attempt.round,
                  std::move(measurement),
                  attempt.started_at,
                  std::chrono::system_clock::now(),
                  attempt.is_alone};
    attempt.reservation.give_back();
    running_.erase(number);
    if (!was_cut_short) record_repeat(index, std::move(repeat));
    return;
  }
  Record done;
  done.experiment = space_.members[index].planned.experiment;
  done.predicted = report_.rows[index].planned.predicted;
  done.attempt = attempt.try_number;
  done.measurement = std::move(measurement);
  done.is_alone = attempt.is_alone;
  done.predicted.process_memory_bytes = predict_process_bytes(done);
  done.finished_at = std::chrono::system_clock::now();
  // A configuration that does not fit ends before GO.
  const bool went = attempt.state != Attempt::State::building;
  done.started_at = went ? attempt.started_at : done.finished_at;
  attempt.reservation.give_back();
  running_.erase(number);
  if (was_cut_short) return;  // the same command runs it again
  record(index, std::move(done), false);
}

/// By what was known before this experiment; learns from it for the next.
std::int64_t Controller::predict_process_bytes(const Record& record) {
  const PeakMemory& measured = record.measurement.peak_memory;
  OutsideMemory* const outside = options_.outside_memory;
  if (outside == nullptr || record.predicted.peak_memory_bytes == 0) return 0;
  const std::vector<int>& ranks = record.measurement.world_ranks;
  const std::int64_t predicted = outside->bytes(ranks) + record.predicted.peak_memory_bytes;
  if (measured.process_bytes > 0)
    outside->observe(ranks, measured.process_bytes - measured.total_bytes);
  return predicted;
}

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
    const auto [index, repeat, round] = ticket_of(id);
    if (repeat) {
      report_.validation.reason = "too many ranks were lost for its group size";
      continue;
    }
    short_of_ranks_ = true;
    report_.rows[index].planned.reason =
        "too many ranks were lost, or bytes of hosts and disks "
        "with them, for what it needs";
    tuner_.observe(index, {Status::failed, std::nullopt});
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
  const auto left = num_left_.find(report_.rows[index].planned.experiment.shape);
  if (left != num_left_.end() && --left->second == 0) num_left_.erase(left);
}

bool Controller::adopt(std::size_t index) {
  if (report_.rows[index].planned.status != PlanStatus::planned) {
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
    failed.predicted = report_.rows[index].planned.predicted;
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
    const Ticket ticket = ticket_of(next->experiment);
    const std::size_t index = ticket.index;
    const Experiment& experiment = space_.members[index].planned.experiment;
    const std::uint64_t number = next_attempt_++;
    Attempt attempt;
    attempt.index = index;
    attempt.repeat = ticket.repeat;
    attempt.round = ticket.round;
    if (!ticket.repeat) attempt.try_number = ++tries_[index];
    if (const auto died = history_.deaths.find(keys_[index]); died != history_.deaths.end()) {
      attempt.try_number += died->second;
    }
    attempt.reservation = std::move(next->reservation);
    attempt.last_sign = Clock::now();
    const double patience_s = options_.patience_s(experiment);
    if (options_.trial_timeout_s) {
      attempt.timeout_s = *options_.trial_timeout_s;
    } else if (options_.default_timeout_s) {
      attempt.timeout_s = options_.default_timeout_s(experiment);
    }
    attempt.give_up_at = attempt.timeout_s > 0 ? attempt.last_sign + to_duration(attempt.timeout_s)
                                               : Clock::time_point::max();
    if (ticket.repeat) {
      journal_.add(event::repeat_started(keys_[index], experiment.name, *ticket.repeat,
                                         ticket.round, attempt.reservation.world_ranks()));
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
    for (const int member : attempt.reservation.world_ranks()) {
      send(member, message::Assign{number, experiment.name, experiment.config,
                                   attempt.reservation.world_ranks(), member_timeout_s, ds_config});
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
    has_started = true;
  }
  return has_started;
}

/// What the best so far means for this challenger. What is measured again is measured fully.
void Controller::send_bar(std::uint64_t number, const Attempt& attempt) {
  // Calibrated times are another order than those that are raced.
  if (!options_.races || !best_ || !options_.own_runs.empty()) return;
  if (attempt.repeat || reruns_.contains(attempt.index)) return;
  const Experiment& challenger = space_.members[attempt.index].planned.experiment;
  send(attempt.reservation.world_ranks().front(),
       message::Bar{number, race_bar(report_, report_.rows[*best_], challenger)});
}

void Controller::record(std::size_t index, Record record, bool is_known) {
  const Experiment& experiment = record.experiment;
  const auto value = value_so_far(record.measurement, options_.metric,
                                  global_batch(experiment.config, experiment.shape.size()),
                                  experiment.shape.size());
  if (is_known) {
    dispatched_.push_back(index);  // its files may have been lost with the job that measured it
  } else {
    journal_.add(event::finished(keys_[index], record));
  }
  ended_.push_back(index);
  num_results_ += record.measurement.status == Status::ok ? 1 : 0;
  if (options_.predictor != nullptr) options_.predictor->observe(experiment, record.measurement);
  tuner_.observe(index, {record.measurement.status, value});
  report_.rows[index].record = std::move(record);
  const Row none;
  const Row& row = report_.rows[index];
  const Row& other = best_ ? report_.rows[*best_] : none;
  // As best_row() does over all: of equal ones the earlier in the space.
  const bool is_best = is_better(report_, row, other) ||
                       (best_ && index < *best_ && row.record->measurement.status == Status::ok &&
                        !is_better(report_, other, row));
  if (is_best) {
    best_ = index;
    for (const auto& [number, attempt] : running_) send_bar(number, attempt);
  }
  if (std::any_of(report_.own_runs.begin(), report_.own_runs.end(),
                  [&](const OwnRun& run) { return run.row == index; })) {
    calibrate();
  }
  if (best_ && (is_best || row.verified)) answer_ = answer_row(report_, *best_);
  progress_.ended(*report_.rows[index].record, options_.metric, is_known, is_best);
}

/// Another of the user's own configurations was measured here: all are ranked anew.
void Controller::calibrate() {
  std::vector<CalibrationPoint> points;
  for (const OwnRun& run : report_.own_runs) {
    const std::optional<Record>& known = report_.rows[run.row].record;
    if (!known) continue;
    const Experiment& experiment = known->experiment;
    const auto latency_us =
        metric_value(known->measurement, Metric::latency, 1, experiment.shape.size());
    if (!latency_us || !(latency_us->value > 0)) continue;
    points.push_back({latency_us->value * 1e-6, run.step_s, experiment.config.accumulation_steps});
  }
  if (points.empty()) return;
  report_.calibration = fit_time(points, options_.num_modules);
  best_ = best_row(report_);
  if (best_) answer_ = answer_row(report_, *best_);
  written_answer_.reset();  // its value is another one now
}

void Controller::finish() {
  for (const auto& [index, reason] : tuner_.skipped()) {
    report_.rows[index].planned.status = PlanStatus::pruned;
    report_.rows[index].planned.reason = reason;
  }
  report_.elapsed_s = seconds(Clock::now() - began_);
  report_.chance_of_better = tuner_.chance_of_better();
  if (stopping_since_ && !report_.validation.is_done) report_.validation.reason = "stopped early";
  std::set<std::size_t> settled = held_;
  for (const auto& [number, attempt] : running_) settled.erase(attempt.index);
  for (const std::size_t index : settled) write_metrics(index);
  written_answer_.reset();  // how sure it is is known only now
  write_best();
  if (best_) results_.write_validation(report_);
  // Again: the others of the best few may have come after the best.
  results_.write_verification(report_, options_.training_command, options_.arg_mappings);
  if (best_ && options_.memory_timeline) {
    const Experiment& best = report_.rows[*best_].record->experiment;
    // Behind the experiment's other files, whose folder it needs.
    writer_.add([this, &best] {
      if (const auto timeline = options_.memory_timeline(best))
        results_.write_memory(best.name, *timeline);
    });
  }
  results_.write_summary(report_);
  progress_.end();
}

void Controller::send(int world_rank, const Message& message) {
  outbox_.emplace_back(world_rank, message);
}

}  // namespace dstune
