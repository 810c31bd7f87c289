#include "control/agenda.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/log.hpp"
#include "dstune/core/log_text.hpp"

namespace dstune {
namespace {

const Policy::Tries& tries() {
  return default_policy().tries;
}

}  // namespace

std::vector<Turn> turns_of(const Run& run) {
  std::vector<Turn> turns = run.others;
  turns.insert(turns.begin(), {run.member, run.round});
  return turns;
}

Agenda::Agenda(Search search, Take take)
    : search_(search),
      take_(std::move(take)),
      scheduler_(search.slots),
      built_(search.scoreboard, search.slots, search.built_bytes) {
  for (std::size_t member = 0; member < search_.keys.size(); ++member) {
    // An earlier part of the search may have run it.
    if (search_.space.status(member) != PlanStatus::planned || search_.scoreboard.has_run(member))
      continue;
    ++num_left_[search_.space.shape(member)];
    if (search_.history.finished.contains(search_.keys[member]))
      known_.push_back(member);
    else if (search_.history.retried.contains(search_.keys[member]))
      retried_.push_back(member);
    else if (!search_.is_complete && is_suspect(member))
      suspects_.push_back(member);
  }
}

void Agenda::take_known() {
  // In the order in which they ended: what was believed of each before is learnt again.
  const auto ended_at = [&](std::size_t member) {
    return search_.history.finished.at(search_.keys[member]).finished_at;
  };
  std::ranges::stable_sort(known_, {}, ended_at);
  for (const std::size_t member : known_) {
    note_asked_for(member);
    take_without_run(member);
  }
}

/// The tuner will not ask for it again.
void Agenda::note_asked_for(std::size_t member) {
  const auto left = num_left_.find(search_.space.shape(member));
  if (left != num_left_.end() && --left->second == 0) num_left_.erase(left);
}

int Agenda::num_deaths(std::size_t member) const {
  const auto died = search_.history.deaths.find(search_.keys[member]);
  return died == search_.history.deaths.end() ? 0 : died->second;
}

bool Agenda::is_blamed(std::size_t member) const {
  const std::string& key = search_.keys[member];
  return search_.history.died_alone.contains(key) &&
         num_deaths(member) >= (search_.history.seen_to_die.contains(key)
                                    ? tries().deaths_until_blamed
                                    : tries().unseen_deaths_until_blamed);
}

/// The last jobs died while it was running, and it is not known whether of it.
bool Agenda::is_suspect(std::size_t member) const {
  return num_deaths(member) >= tries().deaths_until_alone && !is_blamed(member);
}

/// Runs suspects one after the other, before all others: the blame shows only where nothing else
/// runs. Returns whether any is left.
bool Agenda::try_suspects(bool is_idle) {
  if (!is_idle || !is_empty()) return is_suspect_out_;
  is_suspect_out_ = !suspects_.empty();
  if (!is_suspect_out_) return false;
  const std::size_t member = suspects_.front();
  suspects_.pop_front();
  note_asked_for(member);
  scheduler_.submit(member, needs(member));
  return true;
}

/// Runs members that failed before. They run before the tuner is asked, since it would not ask for
/// what it has heard of. Returns whether any is left.
bool Agenda::try_failed_again(bool is_idle) {
  if (are_retried_out_ && is_idle && is_empty()) are_retried_out_ = false;
  for (const std::size_t member : std::exchange(retried_, {})) {
    note_asked_for(member);
    scheduler_.submit(member, needs(member));
    are_retried_out_ = true;
  }
  return are_retried_out_;
}

/// Answers the tuner at once where there is an answer.
bool Agenda::take_without_run(std::size_t member) {
  if (search_.scoreboard.status(member) != PlanStatus::planned) {
    search_.tuner.observe(member, {Status::out_of_memory, std::nullopt});
    return true;
  }
  const std::string& key = search_.keys[member];
  const History& history = search_.history;
  if (const auto known = history.finished.find(key); known != history.finished.end()) {
    Record record = known->second;
    record.experiment = search_.scoreboard.row(member).planned.experiment;
    take_(member, std::move(record), true);
    return true;
  }
  if (!is_blamed(member)) return false;
  const PlannedExperiment& planned = search_.scoreboard.row(member).planned;
  Record failed;
  failed.experiment = planned.experiment;
  failed.predicted = planned.predicted;
  failed.attempt = num_deaths(member);
  failed.measurement.status = Status::failed;
  failed.measurement.reason = fmt::format(
      "was running when the job died, {} times, and at the last nothing else was; --retry-failed "
      "runs it again",
      num_deaths(member));
  take_(member, std::move(failed), false);
  return true;
}

void Agenda::fill(double time_left_s, bool is_idle, bool is_measuring) {
  if (try_suspects(is_idle) || try_failed_again(is_idle)) {
    give_up_impossible();
    return;
  }
  // A grid is asked for at once, and then measured.
  if (!is_search_over() || (!search_.races && is_measuring)) {
    const auto again = search_.run_again.during_search(time_left_s);
    // A member in whose repeat a job may have died is repeated in the finals only, alone.
    if (again && !search_.history.interrupted_repeats.contains(search_.keys[again->member]))
      submit(*again);
  }
  while (!search_.is_complete && scheduler_.num_waiting() < max_waiting(is_idle)) {
    const std::optional<std::size_t> member = search_.tuner.next();
    const std::vector<std::string> notes = search_.tuner.notes();
    for (; num_notes_told_ < notes.size(); ++num_notes_told_) log::warning(notes[num_notes_told_]);
    if (!member) break;
    note_asked_for(*member);
    if (!take_without_run(*member)) scheduler_.submit(*member, needs(*member));
  }
  give_up_impossible();
}

/// One that learns is asked when there is room for what it may answer.
std::size_t Agenda::max_waiting(bool is_idle) const {
  if (search_.tuner.max_waiting() > 0) return search_.tuner.max_waiting();
  // No rank will become idle by itself where nothing runs: what can not be placed is to be told.
  const bool is_asked = is_idle || std::ranges::any_of(num_left_, [&](const auto& left) {
                          return search_.slots.has_room(Needs{left.first});
                        });
  return is_asked ? 1 : 0;
}

bool Agenda::fill_again(double time_left_s) {
  if (submit_next_round()) return true;
  if (built_.is_wanted()) {
    plan_rounds(search_.run_again.next_round(time_left_s));
    return submit_next_round();
  }
  const auto again = search_.run_again.after_search(time_left_s);
  if (again) submit(*again);
  return again.has_value();
}

void Agenda::look_ahead(double time_left_s) {
  if (built_.is_wanted() && rounds_.empty()) plan_rounds(search_.run_again.next_round(time_left_s));
}

void Agenda::forget_rounds() {
  rounds_.clear();
  built_.clear();
  search_.run_again.withdraw_rounds();
}

void Agenda::rebuild(const Turn& turn) {
  built_.give_up();
  std::vector<RunAgain> runs{{turn.member, RepeatKind::final_round, turn.round}};
  for (Round& round : std::exchange(rounds_, {}))
    runs.insert(runs.end(), round.runs.begin(), round.runs.end());
  plan_rounds(runs);
}

/// Risky runs have communicators that end with them.
bool Agenda::may_stay(const RunAgain& run) const {
  return run.kind && built_.stays(run.member) && num_deaths(run.member) == 0;
}

/// A member in whose run a job may have died runs by itself: else the blame does not show.
bool Agenda::may_share(const RunAgain& run) const {
  return may_stay(run) && !search_.history.interrupted_repeats.contains(search_.keys[run.member]);
}

/// Finalists that stay built and need as many ranks take turns; each of the rest has a run of its
/// own.
void Agenda::plan_rounds(const std::vector<RunAgain>& runs) {
  std::vector<std::size_t> finalists;
  for (const RunAgain& run : runs)
    if (run.kind) finalists.push_back(run.member);
  if (!finalists.empty()) built_.choose(finalists);
  std::vector<std::string> rebuilt;
  for (const std::size_t member : finalists)
    if (!built_.stays(member) && told_rebuilt_.insert(member).second)
      rebuilt.push_back(search_.space.experiment(member).name);
  if (!rebuilt.empty() && !built_.is_given_up())
    log::warning(fmt::format(log_text::finalists_are_rebuilt, fmt::join(rebuilt, ", ")));
  const std::size_t first = rounds_.size();
  for (const RunAgain& run : runs) {
    const GroupShape& shape = search_.space.experiment(run.member).shape;
    const auto same = std::find_if(
        rounds_.begin() + static_cast<std::ptrdiff_t>(first), rounds_.end(), [&](const Round& one) {
          return may_share(one.runs.front()) &&
                 search_.space.experiment(one.runs.front().member).shape == shape;
        });
    if (may_share(run) && same != rounds_.end())
      same->runs.push_back(run);
    else
      rounds_.push_back({{run}, may_stay(run)});
  }
}

bool Agenda::submit_next_round() {
  if (rounds_.empty()) return false;
  Round round = std::move(rounds_.front());
  rounds_.pop_front();
  const RunAgain& first = round.runs.front();
  if (!first.kind) {
    submit(first);
    return true;
  }
  const Needs needs = built_.needs_beside(first.member);
  repeats_.push_back(std::move(round));
  scheduler_.submit(search_.space.members.size() + repeats_.size() - 1, needs);
  return true;
}

void Agenda::submit(const RunAgain& again) {
  if (!again.kind) {
    tries_[again.member] = search_.scoreboard.row(again.member).record->attempt;
    scheduler_.submit(again.member, needs(again.member));
    return;
  }
  repeats_.push_back({{again}});
  scheduler_.submit(search_.space.members.size() + repeats_.size() - 1, needs(again.member),
                    again.avoided_ranks);
}

Needs Agenda::needs(std::size_t member) const {
  const PlannedExperiment& planned = search_.space.members[member].planned;
  return needs_of(planned.experiment, planned.predicted);
}

/// A member's number is the id of its first run; ids of repeats follow.
Run Agenda::run_of(std::size_t id) const {
  const std::size_t members = search_.space.members.size();
  if (id < members) return {id};
  const Round& round = repeats_[id - members];
  const RunAgain& first = round.runs.front();
  Run run{first.member, first.kind, first.round};
  run.stays_built = round.stays_built;
  // A finalist that is built for its run is measured fully.
  const bool is_full = first.kind == RepeatKind::final_round && !round.stays_built;
  run.slice_share = is_full ? 1 : first.slice_share;
  for (std::size_t other = 1; other < round.runs.size(); ++other)
    run.others.push_back({round.runs[other].member, round.runs[other].round});
  return run;
}

std::optional<Agenda::Next> Agenda::next() {
  auto dispatch = scheduler_.next();
  if (!dispatch) return std::nullopt;
  Run run = run_of(dispatch->experiment);
  if (!run.repeat) run.try_number = ++tries_[run.member];
  run.try_number += num_deaths(run.member);
  // A member that was only raced out beside a neighbour is no risk.
  run.is_risky = run.try_number > 1 && !search_.run_again.is_rerun(run.member);
  const auto failed = search_.history.retried.find(search_.keys[run.member]);
  if (failed != search_.history.retried.end() && !run.repeat) run.try_number += failed->second;
  return Next{run, std::move(dispatch->reservation)};
}

bool Agenda::try_again(const Run& run) {
  if (tries_[run.member] >= tries().tries_after_loss) return false;
  scheduler_.resubmit(run.member, needs(run.member));
  return true;
}

void Agenda::give_up_impossible() {
  for (const std::size_t id : scheduler_.take_impossible()) {
    const Run run = run_of(id);
    if (run.repeat) {
      search_.scoreboard.give_up_finals("too many ranks were lost for its group size");
      continue;
    }
    is_short_of_ranks_ = true;
    search_.scoreboard.leave_out(
        run.member,
        "too many ranks were lost, or bytes of hosts and disks with them, for "
        "what it needs");
    search_.tuner.observe(run.member, {Status::failed, std::nullopt});
  }
}

}  // namespace dstune
