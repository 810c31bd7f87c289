#include "dstune/tune/controller.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"
#include "dstune/search/calibration.hpp"
#include "dstune/tune/idle.hpp"
#include "dstune/tune/injection.hpp"
#include "prediction.hpp"
#include "steady_time.hpp"

namespace dstune {

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
    if (gone->has_lost_device)
      (gone->is_device_silent ? attempt.silent_devices : attempt.without_device).insert(source);
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
  predict_memory(done);
  done.finished_at = std::chrono::system_clock::now();
  // A configuration that does not fit ends before GO.
  const bool went = attempt.state != Attempt::State::building;
  done.started_at = went ? attempt.started_at : done.finished_at;
  attempt.reservation.give_back();
  running_.erase(number);
  if (was_cut_short) return;  // the same command runs it again
  record(index, std::move(done), false);
}

/// Of processes and GPUs, by what was known before this experiment; learns from it for the next.
void Controller::predict_memory(Record& record) {
  Prediction& predicted = record.predicted;
  const PeakMemory& measured = record.measurement.peak_memory;
  const std::vector<int>& ranks = record.measurement.world_ranks;
  if (predicted.peak_memory_bytes == 0) return;
  const auto predict = [&](OutsideMemory* outside, std::int64_t planned_bytes,
                           std::int64_t measured_bytes, std::int64_t arena_bytes) {
    if (outside == nullptr) return std::int64_t{0};
    const std::int64_t bytes = outside->bytes(ranks) + planned_bytes;
    if (measured_bytes > 0) outside->observe(ranks, measured_bytes - arena_bytes);
    return bytes;
  };
  const bool is_on_host = !options_.devices_have_own_memory;
  predicted.process_memory_bytes =
      predict(options_.outside_memory,
              is_on_host ? predicted.peak_memory_bytes : predicted.host_memory_bytes,
              measured.process_bytes, is_on_host ? measured.total_bytes : measured.host_bytes);
  predicted.gpu_memory_bytes = predict(
      options_.outside_gpu_memory, predicted.peak_memory_bytes - predicted.host_memory_bytes,
      measured.gpu_bytes, measured.total_bytes - measured.host_bytes);
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
  if (options_.overheads && !report_.own_runs.empty())
    report_.rows[index].overheads = options_.overheads(experiment);
  report_.rows[index].record = std::move(record);
  note_value(report_.rows[index], report_.metric);
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
    points.push_back({latency_us->value * 1e-6, run.step_s, report_.rows[run.row].overheads});
  }
  if (points.empty()) return;
  report_.calibration = fit_time(points);
  best_ = best_row(report_);
  if (best_) answer_ = answer_row(report_, *best_);
  written_answer_.reset();  // its value is another one now
}

void Controller::send(int world_rank, const Message& message) {
  outbox_.emplace_back(world_rank, message);
}

}  // namespace dstune
