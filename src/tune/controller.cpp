#include "dstune/tune/controller.hpp"

#include <algorithm>

#include "dstune/base/error.hpp"
#include "dstune/tune/idle.hpp"
#include "dstune/tune/injection.hpp"
#include "prediction.hpp"
#include "steady_time.hpp"

namespace dstune {

namespace {

ScoreboardSetup setup_of(const PlannedSpace& space, const ControllerOptions& options) {
  return {options.metric, options.own_runs, options.memory_offset_bytes, space.own};
}

std::vector<Row> rows_of(const PlannedSpace& space, const std::vector<std::string>& keys,
                         const History& history) {
  std::vector<Row> rows;
  for (const PlannedMember& member : space.members) rows.push_back({member.planned});
  for (std::size_t index = 0; index < keys.size(); ++index)
    if (const auto known = history.repeats.find(keys[index]); known != history.repeats.end())
      rows[index].repeats = known->second;
  return rows;
}

RunAgainPolicy::Options again_options(const PlannedSpace& space,
                                      const std::vector<std::string>& keys, const History& history,
                                      const ControllerOptions& options) {
  RunAgainPolicy::Options again{options.races, options.repeats_best, space.planned <= 1};
  for (std::size_t index = 0; index < keys.size(); ++index)
    if (const auto died = history.repeat_deaths.find(keys[index]);
        died != history.repeat_deaths.end())
      again.deaths[index] = died->second;
  return again;
}

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
      board_(setup_of(space_, options_), rows_of(space_, keys_, history_)),
      again_(board_, again_options(space_, keys_, history_, options_)),
      next_attempt_(options_.first_attempt),
      began_(Clock::now()) {
  for (const PlannedMember& member : space_.members)
    if (member.planned.status == PlanStatus::planned) ++num_left_[member.planned.experiment.shape];
  for (std::size_t index = 0; index < keys_.size(); ++index)
    if (const auto known = history_.verified.find(keys_[index]); known != history_.verified.end())
      board_.verify(index, known->second);
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
  if (!board_.best()) {
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
  done.predicted = board_.row(index).planned.predicted;
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
  const auto value = value_so_far(record.measurement, options_.metric, experiment);
  if (is_known) {
    dispatched_.push_back(index);  // its files may have been lost with the job that measured it
  } else {
    journal_.add(event::finished(keys_[index], record));
  }
  ended_.push_back(index);
  if (options_.predictor != nullptr) options_.predictor->observe(experiment, record.measurement);
  tuner_.observe(index, {record.measurement.status, value});
  const Overheads overheads = options_.overheads && !options_.own_runs.empty()
                                  ? options_.overheads(experiment)
                                  : Overheads{};
  const bool is_best = board_.record(index, std::move(record), overheads);
  if (is_best)
    for (const auto& [number, attempt] : running_) send_bar(number, attempt);
  progress_.ended(*board_.row(index).record, options_.metric, is_known, is_best);
}

void Controller::send(int world_rank, const Message& message) {
  outbox_.emplace_back(world_rank, message);
}

}  // namespace dstune
