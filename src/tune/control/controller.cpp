#include "control/controller.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/core/log_text.hpp"
#include "profile/prediction.hpp"
#include "watch/injection.hpp"

namespace dstune {
namespace {

std::vector<TimeEstimate::Member> members_to_estimate(const Search& search) {
  std::vector<TimeEstimate::Member> members;
  members.reserve(search.space.members.size());
  auto next = search.space.members.begin();
  for (std::size_t index = 0; index < search.space.members.size(); ++index, ++next) {
    TimeEstimate::Member& member = members.emplace_back();
    if (search.space.status(index) != PlanStatus::planned) continue;
    const PlannedExperiment& planned = next->planned;
    member.num_at_once = std::max(1, search.slots.num_slots() / planned.experiment.shape.size());
    if (const auto& throughput = planned.predicted.throughput; throughput && *throughput > 0)
      member.predicted_step_s = static_cast<double>(batch_of(planned.experiment)) / *throughput;
  }
  return members;
}

}  // namespace

Controller::Controller(const Search& search, JobPolicy policy, AttemptDriver& driver,
                       Listeners listeners)
    : search_(search),
      policy_(std::move(policy)),
      driver_(driver),
      listeners_(std::move(listeners)),
      agenda_(search,
              [this](std::size_t member, Record result, bool is_known) {
                // Its files may have been lost with the job that ran it.
                listeners_.publisher.started(member);
                if (!is_known) result.started_at = result.finished_at = driver_.now().wall;
                record(member, std::move(result), is_known);
              }),
      estimate_(members_to_estimate(search_)),
      began_(policy_.began) {}

ExitCode Controller::run() {
  listeners_.progress.begin_search(search_.space.planned, policy_.search_name);
  listeners_.progress.set_estimate([this] { return time_left(); });
  agenda_.take_known();
  listeners_.progress.tell_known();
  IdleBackoff idle;
  for (;;) {
    const bool has_heard = listen();
    watch();
    // One after the other where a tuner answers for as many ranks as are idle.
    do {
      if (!is_stopping_) agenda_.fill(time_left_s(), running_.empty(), is_measuring());
    } while (start_next());
    const bool has_said = publish();
    look_ahead();
    listeners_.progress.tick();
    if (running_.empty() && agenda_.is_empty() &&
        (is_stopping_ || (agenda_.is_search_over() && !agenda_.fill_again(time_left_s()))))
      return conclude();
    if (has_heard || has_said) {
      idle.reset();
    } else {
      idle.pause();
    }
  }
}

/// Tells whether first runs go on.
bool Controller::is_measuring() const {
  return std::ranges::any_of(running_, [](const auto& one) { return !one.second.run.repeat; });
}

/// Starts what there is room for; whether there was anything.
bool Controller::start_next() {
  if (is_stopping_) return false;
  bool has_started = false;
  while (auto next = agenda_.next()) {
    start(std::move(*next));
    has_started = true;
  }
  return has_started;
}

void Controller::start(Agenda::Next next) {
  const Run& run = next.run;
  const Experiment& experiment = planned(run.member).experiment;
  const std::string& key = search_.keys[run.member];
  const std::vector<int>& world_ranks = next.reservation.world_ranks();
  if (run.repeat) {
    for (const auto& [member, round] : turns_of(run))
      listeners_.journal.add(event::repeat_started(
          search_.keys[member], planned(member).experiment.name, *run.repeat, round, world_ranks));
  } else {
    if (listeners_.times != nullptr) {
      Prediction predicted;
      listeners_.times->predict(experiment, predicted);
      search_.scoreboard.predict(run.member, predicted);
    }
    listeners_.journal.add(event::started(key, experiment.name, run.try_number, world_ranks));
    listeners_.publisher.started(run.member);
  }
  if (run.repeat == RepeatKind::final_round) {
    listeners_.progress.begin(TuningPhase::finals);
    if (const std::string note = std::exchange(policy_.finals_note, {}); !note.empty())
      log::info(note);
  }
  message::Assign order;
  order.experiment = experiment.name;
  order.config = experiment.config;
  order.world_ranks = world_ranks;
  order.is_risky = run.is_risky;
  order.instrument = policy_.instrument;
  if (policy_.input) order.input = policy_.input(experiment);
  order.slice_share = run.slice_share;
  order.stays_built = run.stays_built;
  if (run.stays_built) order.turn_steps = turn_steps(run.member);
  for (const Turn& other : run.others) {
    const Experiment& one = planned(other.member).experiment;
    order.others.push_back({one.name, one.config, turn_steps(other.member)});
  }
  release([&](std::size_t member) { return !agenda_.stays_built(member); });
  const Attempts::Number number =
      driver_.attempts().begin(std::move(order), limits_of(run), driver_.now());
  if (run.stays_built) {
    last_turns_ = number;
    for (const Turn& turn : turns_of(run)) built_[turn.member] = world_ranks;
  }
  race(number, run);
  listeners_.progress.started(number, experiment, run.others.size());
  estimate_.started(number, run.member,
                    !run.repeat                             ? TimeEstimate::Kind::first
                    : run.repeat == RepeatKind::final_round ? TimeEstimate::Kind::final
                                                            : TimeEstimate::Kind::again,
                    elapsed_s(), 1 + run.others.size());
  running_.emplace(number, std::move(next));
}

std::optional<TimeLeft> Controller::time_left() const {
  TimeEstimate::Expected expected{.first_runs = search_.tuner.expected_left(),
                                  .time_left_s = time_left_s()};
  if (search_.is_complete) expected.first_runs = ExpectedRuns{};
  if (!expected.first_runs || is_stopping_) return std::nullopt;
  *expected.first_runs += ExpectedRuns::exactly(static_cast<double>(agenda_.num_waiting()));
  expected.finals =
      search_.run_again.expected_finals(estimate_.search_s(*expected.first_runs, elapsed_s()));
  expected.final_s = search_.run_again.usual_final_s();
  return estimate_.left(expected, elapsed_s());
}

/// Tells a challenger what the best so far means for it. Repeats and reruns are measured fully.
void Controller::race(Attempts::Number number, const Run& run) {
  const Scoreboard& scoreboard = search_.scoreboard;
  if (!search_.races || !scoreboard.best()) return;
  if (run.repeat || search_.run_again.is_rerun(run.member)) return;
  // The user's own runs have to end, too, or they say nothing of the user's training.
  if (std::ranges::find(scoreboard.setup().user_runs, run.member, &UserRun::member) !=
      scoreboard.setup().user_runs.end())
    return;
  const Experiment& experiment = planned(run.member).experiment;
  driver_.attempts().race(number,
                          incumbent_estimate(scoreboard, experiment, overheads_of(experiment)));
}

Overheads Controller::overheads_of(const Experiment& experiment) const {
  return listeners_.overheads ? listeners_.overheads(experiment) : Overheads{};
}

void Controller::race_all() {
  for (const auto& [number, running] : running_) race(number, running.run);
}

/// Returns whether anything was heard that more may follow soon.
bool Controller::listen() {
  const bool has_heard = driver_.listen();
  for (Attempts::Event& event : driver_.attempts().take_events()) {
    if (const auto* stepped = std::get_if<Attempts::Stepped>(&event)) {
      listeners_.progress.stepped(stepped->attempt, stepped->steps);
    } else if (auto* ended = std::get_if<Attempts::Ended>(&event)) {
      take(std::move(*ended));
    }
  }
  retire_lost();
  return has_heard;
}

/// Nothing is given to a rank that was lost, and be it while it was idle.
void Controller::retire_lost() {
  const std::set<int>& lost = driver_.attempts().lost_ranks();
  if (lost.size() == retired_.size()) return;
  const std::set<int> awaited = driver_.attempts().awaited_ranks();
  for (const int rank : lost) {
    if (!retired_.insert(rank).second || !search_.slots.has(rank)) continue;
    search_.slots.retire(rank);
    // The experiment's end will tell of a rank that takes part in one.
    if (!awaited.contains(rank) && !is_stopping_)
      log::warning(fmt::format(log_text::idle_rank_lost, rank));
  }
}

void Controller::take(Attempts::Ended ended) {
  Agenda::Next running = std::move(running_.extract(ended.attempt).mapped());
  listeners_.progress.left(ended.attempt);
  estimate_.ended(ended.attempt, elapsed_s(), ended.measurement.status == Status::ok);
  const Run& run = running.run;
  const std::size_t member = run.member;
  const Experiment& experiment = planned(member).experiment;
  if (!ended.is_aborted) commit_in_controller(experiment.name);
  has_abandoned_communicator_ |= ended.is_aborted && experiment.shape.num_nodes > 1;
  retire(running, ended);
  running.reservation.give_back();
  tell(ended, member);
  if (run.stays_built) return take_turns(run, std::move(ended));
  if (ended.is_cut_short) {  // the same command runs it again
    // A launcher asks the others to stop where a rank has died: the death counts all the same.
    if (!ended.lost.empty() && !run.repeat)
      listeners_.journal.add(event::lost(search_.keys[member], experiment.name, ended.lost));
    return;
  }
  if (run.repeat) {
    record_repeat(member, {*run.repeat, run.round, std::move(ended.measurement), ended.started_at,
                           ended.finished_at, ended.is_alone});
    return;
  }
  // A script that does not give Python back would take the next ranks, too.
  if (!ended.unusable.empty() && !ended.is_of_script && agenda_.try_again(run)) {
    listeners_.journal.add(event::lost(search_.keys[member], experiment.name, ended.unusable));
    return;
  }
  Record done;
  done.experiment = experiment;
  done.predicted = search_.scoreboard.row(member).planned.predicted;
  done.attempt = run.try_number;
  done.measurement = std::move(ended.measurement);
  done.is_alone = ended.is_alone;
  done.started_at = ended.started_at;
  done.finished_at = ended.finished_at;
  if (done.measurement.status == Status::raced_out) {
    std::string why =
        lost_race_text(search_.scoreboard, experiment, overheads_of(experiment), done.measurement);
    if (!why.empty()) done.measurement.reason = std::move(why);
  }
  if (!ended.is_aborted && listeners_.memory != nullptr) listeners_.memory->predict(done);
  record(member, std::move(done), false);
}

/// Reports what Python says beside the measurement; notes that are new stay with the measurement.
void Controller::tell(Attempts::Ended& ended, std::size_t member) {
  if (!ended.details.empty()) listeners_.publisher.failed(member, ended.details);
  for (std::string& note : ended.notes) {
    if (!told_.insert(note).second) continue;
    log::warning(fmt::format("{}: {}", planned(member).experiment.name, note));
    ended.measurement.notes.push_back(std::move(note));
  }
}

/// Takes ranks out of the job that are lost or have no device any more.
void Controller::retire(Agenda::Next& running, const Attempts::Ended& ended) {
  for (const int rank : ended.unusable) running.reservation.retire(rank);
  // At the end of the job nobody would use it again.
  if (ended.unusable.empty() || is_stopping_) return;
  const bool is_one_left = ended.unusable.size() > ended.lost.size();
  log::warning(fmt::format(
      fmt::runtime(is_one_left ? log_text::ranks_left_with_device : log_text::ranks_not_used_again),
      planned(running.run.member).experiment.name, ended.measurement.reason));
}

void Controller::record(std::size_t member, Record record, bool is_known) {
  const Experiment& experiment = planned(member).experiment;
  if (!is_known) listeners_.journal.add_finished(search_.keys[member], record);
  estimate_.known(member);
  if (listeners_.times != nullptr) listeners_.times->observe(experiment, record.measurement);
  Scoreboard& scoreboard = search_.scoreboard;
  const std::uint64_t revision = scoreboard.value_revision();
  const bool is_best = scoreboard.record(member, std::move(record), overheads_of(experiment));
  const bool is_valued_anew = scoreboard.value_revision() != revision;
  if (is_valued_anew) {
    // The tuner never compares values of two kinds.
    revise_all_but(member);
    if (listeners_.times != nullptr && scoreboard.setup().target)
      listeners_.times->calibrate(scoreboard.calibration());
  }
  search_.tuner.observe(member, observation_of(member));
  if (const auto baseline = search_.tuner.baseline()) scoreboard.set_baseline(*baseline);
  if (is_best || is_valued_anew) race_all();
  listeners_.publisher.ended(member);
  const auto expected = scoreboard.calibration() ? scoreboard.finite_value(member) : std::nullopt;
  listeners_.progress.set_best(best_so_far(search_.scoreboard));
  if (is_known) return listeners_.progress.take_known(member);
  listeners_.progress.ended(member, *scoreboard.row(member).record, scoreboard.metric(), expected,
                            is_best);
}

/// Returns what the tuner hears of a member with a record: its value in the time by which members
/// are ranked.
Observation Controller::observation_of(std::size_t member) const {
  const Scoreboard& scoreboard = search_.scoreboard;
  const Measurement& measurement = scoreboard.row(member).record->measurement;
  const PeakMemory& peak = measurement.peak_memory;
  return {measurement.status, scoreboard.observed_value(member),
          std::max<std::int64_t>(0, peak.total_bytes - peak.host_bytes)};
}

/// Tells the tuner the values of all other members with a record: what it heard before is worth
/// something else now.
void Controller::revise_all_but(std::optional<std::size_t> member) {
  search_.scoreboard.visit_run([&](std::size_t other, const Row&) {
    if (other != member) search_.tuner.revise(other, observation_of(other));
  });
}

void Controller::record_repeat(std::size_t member, Repeat repeat) {
  const Experiment& experiment = planned(member).experiment;
  listeners_.journal.add(event::repeated(search_.keys[member], experiment.name, repeat));
  listeners_.progress.repeated(experiment, repeat, search_.scoreboard.metric());
  const bool has_notes = !repeat.measurement.notes.empty();
  const std::uint64_t revision = search_.scoreboard.value_revision();
  search_.scoreboard.repeat(member, std::move(repeat));
  const bool is_valued_anew = search_.scoreboard.value_revision() != revision;
  if (is_valued_anew) revise_all_but(std::nullopt);
  if (has_notes && search_.scoreboard.row(member).record) listeners_.publisher.ended(member);
  listeners_.progress.set_best(best_so_far(search_.scoreboard));
  if (is_valued_anew || member == search_.scoreboard.best()) race_all();
}

/// Stops the job where it is to end before it is done, and aborts all where the user is urgent.
void Controller::watch() {
  const Moment now = driver_.now();
  const std::string reason = policy_.end.reason(now);
  if (!is_stopping_ && !reason.empty()) stop(reason);
  if (is_stopping_ && policy_.end.is_urgent()) driver_.attempts().abort(now);
}

/// No new experiments; running ones end after their step.
void Controller::stop(const std::string& reason) {
  is_stopping_ = true;
  reason_ = reason + "; the same command resumes";
  listeners_.progress.stop(reason_);
  log::warning(fmt::format(log_text::stopping_early, reason_));
  agenda_.clear();
  driver_.attempts().stop(driver_.now());
  // mpirun may kill everything a second after the signal, and tables of many members take longer.
  tell();
  listeners_.publisher.write_exit_status(ExitCode::stopped_early, reason_);
  finish();
}

/// One commit makes everything of this round durable; only then does anybody hear of it.
bool Controller::tell() {
  bool has_said = driver_.speak_ahead();
  listeners_.journal.commit();
  has_said |= driver_.speak();
  return has_said;
}

bool Controller::publish() {
  const bool has_said = tell();
  const SteadyClock::time_point now = driver_.now().steady;
  search_.scoreboard.note_elapsed(seconds(now - began_));
  listeners_.publisher.publish(now);
  listeners_.publisher.show(listeners_.progress.state(),
                            !driver_.attempts().is_timing(policy_.ranks_here), now);
  return has_said;
}

/// Says what became of the members that were not run, and writes all that is known.
void Controller::finish() {
  listeners_.journal.check();  // what is written now may be another job's
  Scoreboard& scoreboard = search_.scoreboard;
  if (!is_stopping_ || agenda_.is_search_over()) {
    for (const auto& [member, reason, kind] : search_.tuner.skipped())
      scoreboard.prune(member, reason, kind);
  }
  if (is_stopping_) {
    for (std::size_t member = 0; member < scoreboard.rows().size(); ++member)
      if (scoreboard.status(member) == PlanStatus::planned && !scoreboard.has_run(member))
        scoreboard.leave_out(member, "the job was stopped before it had run");
    if (!scoreboard.finals().is_done) scoreboard.give_up_finals("stopped early");
    if (scoreboard.best()) scoreboard.judge();
  }
  scoreboard.conclude(seconds(driver_.now().steady - began_), search_.tuner.chance_of_better(),
                      policy_.host_load ? policy_.host_load() : std::nullopt);
  std::set<std::size_t> running;
  for (const auto& [number, one] : running_) running.insert(one.run.member);
  listeners_.publisher.finish(running, state_at_end());
}

JobState Controller::state_at_end() const {
  JobState state = listeners_.progress.state();
  state.is_running = false;
  state.phase = TuningPhase::done;
  state.left.reset();
  state.reason = reason_;
  return state;
}

ExitCode Controller::conclude() {
  listeners_.progress.begin(TuningPhase::writing);
  release([](std::size_t) { return true; });
  driver_.speak();
  finish();
  listeners_.publisher.drain();
  const ExitCode code = judge_end();
  if (code == ExitCode::stopped_early) listeners_.progress.stop(reason_);
  listeners_.progress.begin(TuningPhase::done);
  return code;
}

/// Returns what came of the job, and notes it in words.
ExitCode Controller::judge_end() {
  if (is_stopping_) return ExitCode::stopped_early;
  if (agenda_.is_short_of_ranks()) {
    const std::set<int>& lost = driver_.attempts().lost_ranks();
    if (!lost.empty())
      reason_ = fmt::format("lost rank{} {}: ", lost.size() == 1 ? "" : "s", fmt::join(lost, ", "));
    reason_ += "too few ranks are left for some group sizes; the same command resumes";
    return ExitCode::stopped_early;
  }
  if (!search_.scoreboard.best()) {
    bool has_run = false;
    search_.scoreboard.visit_run([&](std::size_t, const Row&) { has_run = true; });
    reason_ = fmt::format("{}; the summary has the reason of each",
                          has_run ? "no experiment succeeded" : "no member can run");
    return ExitCode::nothing_feasible;
  }
  reason_ = "done";
  return ExitCode::ok;
}

}  // namespace dstune
