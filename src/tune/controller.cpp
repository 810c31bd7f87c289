#include "dstune/tune/controller.hpp"

#include "dstune/tune/idle.hpp"
#include "steady_time.hpp"

namespace dstune {
namespace {

/// Experiments waiting for slots: enough to fill what a head leaves idle, few enough that the tuner
/// decides late.
constexpr std::size_t waiting_goal = 64;
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
      began_(Clock::now()) {
  report_.metric = options_.metric;
  for (const PlannedMember& member : space_.members) {
    report_.rows.push_back({member.planned, std::nullopt});
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
  Idle idle;
  for (;;) {
    const bool heard = receive();
    watch();
    feed();
    dispatch();
    const bool said = publish();
    if (running_.empty() && scheduler_.num_waiting() == 0 &&
        (stopping_since_ || tuner_.is_done())) {
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
    const Record& record = *report_.rows[index].record;  // never touched again
    writer_.add([this, &record] { results_.write_metrics(record, options_.metric); });
  }
  ended_.clear();
  if (best_ != written_best_ && (!said || Clock::now() - best_written_at_ > best_interval)) {
    write_best();
  }
  return said;
}

void Controller::write_best() {
  if (best_ == written_best_) return;
  results_.write_optimal(*report_.rows[*best_].record, report_, options_.training_command,
                         options_.arg_mappings);
  written_best_ = best_;
  best_written_at_ = Clock::now();
}

bool Controller::receive() {
  bool heard = false;
  while (auto received = mailbox_.try_receive()) {
    heard = true;
    handle(received->source, decode(received->data));
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
    }
    conclude_aborted(number);
  }
}

void Controller::outcome(std::uint64_t number, Attempt& attempt, const Measurement& measurement) {
  const std::size_t index = attempt.index;
  Record done;
  done.experiment = space_.members[index].planned.experiment;
  done.predicted = space_.members[index].planned.predicted;
  done.attempt = attempt.try_number;
  done.measurement = measurement;
  done.finished_at = std::chrono::system_clock::now();
  // A configuration that does not fit ends before GO.
  const bool went = attempt.state != Attempt::State::building;
  done.started_at = went ? attempt.started_at : done.finished_at;
  const bool was_cut_short =
      attempt.state == Attempt::State::stopping && measurement.status == Status::raced_out;
  attempt.reservation.give_back();
  running_.erase(number);
  if (was_cut_short) return;  // the same command runs it again
  record(index, std::move(done), false);
}

/// Takes experiments from the tuner into the queue; known ones are answered from the journal.
void Controller::feed() {
  if (stopping_since_) return;
  while (scheduler_.num_waiting() < waiting_goal) {
    const std::optional<std::size_t> index = tuner_.next();
    if (!index) break;
    if (adopt(*index)) continue;
    scheduler_.submit(*index, space_.members[*index].planned.experiment.shape);
  }
  for (const std::size_t index : scheduler_.take_impossible()) {
    short_of_ranks_ = true;
    report_.rows[index].planned.reason = "too many ranks were lost for its group size";
    tuner_.observe(index, Status::failed, std::nullopt);
  }
}

bool Controller::adopt(std::size_t index) {
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
    failed.predicted = space_.members[index].planned.predicted;
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

void Controller::dispatch() {
  if (stopping_since_) return;
  while (auto next = scheduler_.next()) {
    const std::size_t index = next->experiment;
    const Experiment& experiment = space_.members[index].planned.experiment;
    const std::uint64_t number = next_attempt_++;
    Attempt attempt;
    attempt.index = index;
    attempt.try_number = ++tries_[index];
    if (const auto died = history_.deaths.find(keys_[index]); died != history_.deaths.end()) {
      attempt.try_number += died->second;
    }
    attempt.reservation = std::move(next->reservation);
    attempt.last_sign = Clock::now();
    const double patience_s = options_.patience_s(experiment);
    attempt.give_up_at = options_.trial_timeout_s
                             ? attempt.last_sign + to_duration(*options_.trial_timeout_s)
                             : Clock::time_point::max();

    journal_.add(event::started(keys_[index], experiment.name, attempt.try_number,
                                attempt.reservation.world_ranks()));
    dispatched_.push_back(index);
    progress_.started(experiment);
    // Members give up by themselves long after ABORT should have reached them.
    const double member_timeout_s =
        options_.trial_timeout_s.value_or(24 * 3600.0) + patience_s + 2 * options_.abort_grace_s;
    const std::string ds_config =
        options_.sends_ds_config ? experiment.ds_config.dump() : std::string();
    for (const int member : attempt.reservation.world_ranks()) {
      send(member, message::Assign{number, experiment.name, experiment.config,
                                   attempt.reservation.world_ranks(), member_timeout_s, ds_config});
    }
    running_.emplace(number, std::move(attempt));
  }
}

void Controller::record(std::size_t index, Record record, bool is_known) {
  const Experiment& experiment = record.experiment;
  const auto value = metric_value(record.measurement, options_.metric,
                                  global_batch(experiment.config, experiment.shape.size()),
                                  experiment.shape.size());
  if (is_known) {
    dispatched_.push_back(index);  // its files may have been lost with the job that measured it
  } else {
    journal_.add(event::finished(keys_[index], record));
  }
  ended_.push_back(index);
  tuner_.observe(index, record.measurement.status,
                 value ? std::optional(value->value) : std::nullopt);
  report_.rows[index].record = std::move(record);
  const Row none;
  const Row& row = report_.rows[index];
  const Row& other = best_ ? report_.rows[*best_] : none;
  // As best_row() does over all: of equal ones the earlier in the space.
  const bool is_best = is_better(row, other, options_.metric) ||
                       (best_ && index < *best_ && row.record->measurement.status == Status::ok &&
                        !is_better(other, row, options_.metric));
  if (is_best) best_ = index;
  progress_.ended(*report_.rows[index].record, options_.metric, is_known, is_best);
}

void Controller::finish() {
  for (const auto& [index, reason] : tuner_.skipped()) {
    report_.rows[index].planned.status = PlanStatus::pruned;
    report_.rows[index].planned.reason = reason;
  }
  report_.elapsed_s = seconds(Clock::now() - began_);
  write_best();
  results_.write_summary(report_);
  progress_.end();
}

void Controller::send(int world_rank, const Message& message) {
  outbox_.emplace_back(world_rank, message);
}

}  // namespace dstune
