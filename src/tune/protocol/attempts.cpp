#include "protocol/attempts.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/base/text.hpp"

namespace dstune {
namespace {

/// "rank 1", "ranks 1, 3"
std::string text_of(const std::set<int>& ranks) {
  return fmt::format("{} {}", ranks.size() > 1 ? "ranks" : "rank", fmt::join(ranks, ", "));
}

/// 0: the message belongs to none.
Attempts::Number attempt_of(const Message& message) {
  return std::visit(
      [](const auto& m) -> Attempts::Number {
        if constexpr (requires { m.attempt; }) {
          return m.attempt;
        } else {
          return 0;
        }
      },
      message);
}

}  // namespace

template <class Order>
Attempts::Number Attempts::begin(Order order, const Limits& limits, Moment now) {
  const Number number = next_++;
  order.attempt = number;
  order.drain_timeout_s = limits.drain_timeout_s;
  // Members give up by themselves long after ABORT should have reached them.
  order.timeout_s =
      (limits.timeout_s > 0 ? limits.timeout_s : default_policy().timeouts.max_timeout_s) +
      limits.inactivity_timeout_s + 2 * limits.abort_grace_s;
  if constexpr (requires { order.choices; }) order.choices = choices_;
  Attempt attempt;
  attempt.members = order.world_ranks;
  attempt.limits = limits;
  attempt.began = attempt.last_sign = now.steady;
  note_neighbours(attempt);
  for (const int member : attempt.members) send(member, order);
  under_way_.emplace(number, std::move(attempt));
  return number;
}

template Attempts::Number Attempts::begin(message::Assign, const Limits&, Moment);
template Attempts::Number Attempts::begin(message::Profile, const Limits&, Moment);

void Attempts::note_neighbours(Attempt& attempt) {
  attempt.is_alone = under_way_.empty();
  for (auto& [number, neighbour] : under_way_) {
    neighbour.is_alone = false;
    if ((attempt.has_nodes || neighbour.has_nodes) && options_.share_a_node &&
        options_.share_a_node(attempt.members, neighbour.members))
      attempt.has_nodes = neighbour.has_nodes = false;
  }
}

void Attempts::note_choices(const kernels::CudaChoices& choices) {
  for (const auto& choice : choices)
    if (choices_.insert(choice).second) new_choices_.insert(choice);
}

void Attempts::send(int world_rank, Message message) {
  outgoing_.push_back({world_rank, std::move(message)});
}

void Attempts::race(Number number, const IncumbentEstimate& incumbent) {
  const auto found = under_way_.find(number);
  if (found != under_way_.end())
    send(found->second.members.front(), message::Incumbent{number, incumbent});
}

void Attempts::release(const std::vector<int>& world_ranks, const std::string& experiment) {
  for (const int rank : world_ranks) send(rank, message::Release{experiment});
}

void Attempts::on(int source, Message message, Moment now) {
  const Number number = attempt_of(message);
  const auto found = under_way_.find(number);
  if (found == under_way_.end()) return;
  Attempt& attempt = found->second;
  attempt.last_sign = now.steady;
  if (std::holds_alternative<message::Ready>(message)) {
    on_ready(number, attempt, source, now);
  } else if (const auto* progress = std::get_if<message::Progress>(&message)) {
    attempt.slowest_step_s = progress->slowest_step_s;
    attempt.turn = progress->turn;
    events_.emplace_back(Stepped{number, progress->steps});
  } else if (auto* outcome = std::get_if<message::Outcome>(&message)) {
    on_outcome(number, attempt, std::move(*outcome), now);
  } else if (auto* profiled = std::get_if<message::Profiled>(&message)) {
    on_profiled(number, attempt, source, std::move(*profiled), now);
  } else if (const auto* gone = std::get_if<message::Gone>(&message)) {
    on_gone(number, attempt, source, *gone, now);
  }
}

bool Attempts::is_timing(const std::set<int>& ranks) const {
  return std::ranges::any_of(under_way_, [&](const auto& one) {
    const Attempt& attempt = one.second;
    return attempt.started_at &&
           std::ranges::any_of(attempt.members, [&](int member) { return ranks.contains(member); });
  });
}

void Attempts::on_ready(Number number, Attempt& attempt, int source, Moment now) {
  attempt.ready.insert(source);
  if (attempt.state != Attempt::State::building || attempt.ready.size() < attempt.members.size())
    return;
  attempt.state = Attempt::State::running;
  attempt.started_at = now.wall;
  for (const int member : attempt.members) send(member, message::Go{number});
}

void Attempts::on_outcome(Number number, Attempt& attempt, message::Outcome outcome, Moment now) {
  Measurement& measurement = outcome.measurement;
  note_choices(outcome.choices);
  if (attempt.state == Attempt::State::aborting) return;
  // Whose energy it was can not be told.
  if (!attempt.has_nodes) measurement.energy_j.reset();
  std::vector<std::pair<WallTime, WallTime>> spans;
  for (const auto& [began_s, ended_s] : outcome.spans) {
    const auto at = [&](double after_go_s) {
      return attempt.started_at.value_or(now.wall) + std::chrono::duration_cast<WallTime::duration>(
                                                         std::chrono::duration<double>(after_go_s));
    };
    spans.emplace_back(at(began_s), at(ended_s));
  }
  const bool is_cut_short =
      attempt.state == Attempt::State::stopping && measurement.status == Status::raced_out;
  end(number,
      {.measurement = std::move(measurement),
       .is_cut_short = is_cut_short,
       .notes = std::move(outcome.notes),
       .others = std::move(outcome.others),
       .spans = std::move(spans)},
      now);
}

void Attempts::on_profiled(Number number, Attempt& attempt, int source, message::Profiled answer,
                           Moment now) {
  attempt.left.insert(source);
  note_choices(answer.choices);
  events_.emplace_back(Profiled{number, source, std::move(answer)});
  if (attempt.state == Attempt::State::aborting) {
    conclude(number, now);
  } else if (attempt.left.size() == attempt.members.size()) {
    Measurement measurement;
    measurement.status = Status::ok;
    end(number, {.measurement = std::move(measurement)}, now);
  }
}

void Attempts::on_gone(Number number, Attempt& attempt, int source, const message::Gone& gone,
                       Moment now) {
  attempt.left.insert(source);
  attempt.notes.insert(attempt.notes.end(), gone.notes.begin(), gone.notes.end());
  if (gone.loss != message::Loss::nothing) attempt.losses[gone.loss].insert(source);
  if (!attempt.has_gone_members || gone.is_cause) events_.emplace_back(Failed{number, gone.reason});
  attempt.has_gone_members = true;
  if (attempt.state != Attempt::State::aborting) {
    // The others may be in a collective with it.
    begin_abort(number, attempt, {gone.status, gone.reason}, now.steady);
    attempt.has_cause = gone.is_cause;
    attempt.details = gone.details;
  } else if (gone.is_cause && !attempt.has_cause) {
    // Peers that saw it leave may have been heard first.
    attempt.status = gone.status;
    attempt.reason = gone.reason;
    attempt.details = gone.details;
    attempt.has_cause = true;
  }
  conclude(number, now);
}

void Attempts::died(int world_rank, const std::string& how) {
  dead_.emplace(world_rank, how);
  lost_.insert(world_rank);
}

void Attempts::tick(Moment now) {
  std::vector<Number> aborting;
  for (auto& [number, attempt] : under_way_) {
    if (attempt.state == Attempt::State::aborting) {
      aborting.push_back(number);
    } else if (const auto failure = failure_of(attempt, now.steady)) {
      begin_abort(number, attempt, *failure, now.steady);
    }
  }
  for (const Number number : aborting) conclude(number, now);
}

/// "rank 1 died"; empty where nobody is missed.
std::string Attempts::death_in(const Attempt& attempt) const {
  for (const int rank : attempt.members)
    if (const auto found = dead_.find(rank); found != dead_.end() && !attempt.left.contains(rank))
      return fmt::format("rank {} {}", rank, found->second);
  return "";
}

/// Nothing where all is well.
std::optional<Attempts::Failure> Attempts::failure_of(const Attempt& attempt, Time now) const {
  if (std::string death = death_in(attempt); !death.empty())
    return Failure{Status::failed, std::move(death)};
  if (stopping_since_ && now - *stopping_since_ > to_duration(options_.stop_grace_s))
    return Failure{Status::timed_out, "stopped"};
  const Limits& limits = attempt.limits;
  if (limits.timeout_s > 0 && now > attempt.began + to_duration(limits.timeout_s))
    return Failure{Status::timed_out, limits.overdue};
  const double inactivity_timeout_s =
      std::max(limits.inactivity_timeout_s,
               default_policy().timeouts.steps_of_silence * attempt.slowest_step_s);
  if (limits.inactivity_timeout_s > 0 && seconds(now - attempt.last_sign) > inactivity_timeout_s)
    return Failure{Status::timed_out,
                   "no sign of life for " + format_duration(inactivity_timeout_s)};
  return std::nullopt;
}

void Attempts::stop(Moment now) {
  if (stopping_since_) return;
  stopping_since_ = now.steady;
  for (auto& [number, attempt] : under_way_) {
    if (attempt.state == Attempt::State::building) {
      begin_abort(number, attempt, {Status::timed_out, "stopped"}, now.steady);
    } else if (attempt.state == Attempt::State::running) {
      attempt.state = Attempt::State::stopping;
      send(attempt.members.front(), message::Stop{number});
    } else if (attempt.state == Attempt::State::aborting) {
      attempt.give_up_at =
          std::min(attempt.give_up_at, now.steady + to_duration(attempt.limits.abort_grace_s));
    }
  }
}

void Attempts::abort(Moment now) {
  for (auto& [number, attempt] : under_way_) {
    if (attempt.state != Attempt::State::aborting)
      begin_abort(number, attempt, {Status::timed_out, "stopped"}, now.steady);
  }
}

void Attempts::begin_abort(Number number, Attempt& attempt, const Failure& failure, Time now) {
  attempt.state = Attempt::State::aborting;
  attempt.is_given_up = !attempt.has_gone_members;
  attempt.status = failure.status;
  attempt.reason = failure.reason;
  const Limits& limits = attempt.limits;
  attempt.give_up_at =
      now + to_duration(limits.abort_grace_s + (stopping_since_ ? 0 : limits.drain_timeout_s));
  for (const int member : attempt.members)
    if (!attempt.left.contains(member)) send(member, message::Abort{number});
}

/// Nobody waits for an answer of the dead.
bool Attempts::is_answered(const Attempt& attempt) const {
  return std::ranges::all_of(attempt.members, [&](int member) {
    return attempt.left.contains(member) || dead_.contains(member);
  });
}

/// Names who died before what its peers saw of it: connections that break.
std::string Attempts::reason_of(const Attempt& attempt) const {
  const std::string death = attempt.is_given_up ? "" : death_in(attempt);
  return death.empty() ? attempt.reason : death + "; " + attempt.reason;
}

/// Ends an aborted attempt once every member has answered or the grace is over: who did not is
/// lost, and of no further use like one that lost its device.
void Attempts::conclude(Number number, Moment now) {
  const Attempt& attempt = under_way_.at(number);
  if (!is_answered(attempt) && now.steady < attempt.give_up_at) return;
  Ended ended;
  ended.measurement.status = attempt.status;
  ended.measurement.reason = reason_of(attempt);
  ended.measurement.world_ranks = attempt.members;
  ended.details = attempt.details;
  ended.notes = attempt.notes;
  const auto has_loss = [&](int member) {
    return std::ranges::any_of(attempt.losses,
                               [&](const auto& one) { return one.second.contains(member); });
  };
  for (const int member : attempt.members) {
    const bool is_lost = !attempt.left.contains(member);
    if (is_lost) ended.lost.push_back(member);
    if (is_lost || has_loss(member)) ended.unusable.push_back(member);
  }
  lost_.insert(ended.lost.begin(), ended.lost.end());
  std::string& reason = ended.measurement.reason;
  if (!ended.lost.empty()) reason += "; lost " + text_of({ended.lost.begin(), ended.lost.end()});
  for (const auto& [loss, ranks] : attempt.losses)
    reason += fmt::format("; {} {}", to_text(loss), text_of(ranks));
  ended.is_of_script = attempt.losses.contains(message::Loss::python);
  ended.is_aborted = true;
  ended.is_given_up = attempt.is_given_up;
  ended.is_cut_short = stopping_since_.has_value();
  end(number, std::move(ended), now);
}

void Attempts::end(Number number, Ended ended, Moment now) {
  const Attempt& attempt = under_way_.at(number);
  ended.attempt = number;
  ended.finished_at = now.wall;
  // A configuration that does not fit ends before GO.
  ended.started_at = attempt.started_at.value_or(now.wall);
  ended.is_alone = attempt.is_alone;
  ended.turn = attempt.turn;
  under_way_.erase(number);
  events_.emplace_back(std::move(ended));
}

std::set<int> Attempts::awaited_ranks() const {
  std::set<int> ranks;
  for (const auto& [number, attempt] : under_way_)
    for (const int member : attempt.members)
      if (!attempt.left.contains(member)) ranks.insert(member);
  return ranks;
}

}  // namespace dstune
