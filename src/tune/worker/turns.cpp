// Finalists that stay built take turns, a few steps each.
#include <algorithm>
#include <chrono>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "dstune/base/clock.hpp"
#include "dstune/base/error.hpp"
#include "dstune/train/workload.hpp"
#include "dstune/tune/worker.hpp"
#include "watch/injection.hpp"
#include "worker/built_steps.hpp"

namespace dstune {
namespace {

/// The order's finalists: its own before the others.
std::vector<message::Finalist> finalists_of(const message::Assign& assign) {
  std::vector<message::Finalist> finalists = assign.others;
  finalists.insert(finalists.begin(), {assign.experiment, assign.config, assign.turn_steps});
  return finalists;
}

/// Tells of each whether all members of the group have it built, after as many steps. The members
/// of other groups may have lost theirs meanwhile. Collective over the group.
std::vector<bool> are_built(const std::vector<BuiltStep*>& mine, ProcessGroup& group) {
  std::vector<double> steps;
  for (const BuiltStep* const step : mine)
    steps.push_back(step == nullptr ? 0.0 : static_cast<double>(step->steps));
  const std::vector<double> all = group.host().exchange(steps);
  std::vector<bool> built(mine.size());
  for (std::size_t place = 0; place < mine.size(); ++place) {
    built[place] = steps[place] > 0;
    for (std::size_t theirs = place; theirs < all.size(); theirs += mine.size())
      built[place] = built[place] && all[theirs] == steps[place];
  }
  return built;
}

}  // namespace

/// One of those that take turns.
struct Worker::Entrant {
  BuiltStep* step = nullptr;
  Injection injection{};
  std::unique_ptr<Workload> workload{};
  std::unique_ptr<MeasuredRun> run{};
  int turn_steps = 1;
  bool has_begun = false, is_over = false;
  message::Span span{};
};

std::vector<Worker::Entrant> Worker::entrants_of(const message::Assign& assign, ProcessGroup& group,
                                                 const Waiter& waiter) {
  const std::vector<message::Finalist> finalists = finalists_of(assign);
  std::vector<BuiltStep*> built;
  for (const auto& [experiment, config, turn_steps] : finalists)
    built.push_back(built_->find(experiment, config, assign.world_ranks));
  const std::vector<bool> goes_on = are_built(built, group);
  std::vector<Entrant> entrants;
  for (std::size_t place = 0; place < finalists.size(); ++place) {
    const auto& [experiment, config, turn_steps] = finalists[place];
    Entrant entrant{.step = goes_on[place] ? built[place] : &built_->add(experiment, config, group),
                    .injection = find_injection(context_.topology->world_rank, experiment),
                    .turn_steps = std::max(1, turn_steps)};
    BuiltStep& step = *entrant.step;
    step.group.follow(group);
    step.waiter = waiter;
    if (!goes_on[place]) {
      RunContext context = context_of(assign, step.group, step.waiter);
      context.config = &step.config;
      context.experiment_name = &step.experiment;
      context.input = &step.input;
      context.world_ranks = &step.world_ranks;
      step.workload = context_.instruments->at(assign.instrument)->make(context);
    }
    entrant.workload =
        with_fault(std::make_unique<RunOfBuilt>(*built_, step), entrant.injection, step.waiter);
    entrants.push_back(std::move(entrant));
  }
  return entrants;
}

/// Each goes on to the end of its turn.
void Worker::take_turn(Entrant& entrant, SteadyClock::time_point went_at) {
  const auto now_s = [&] { return seconds(SteadyClock::now() - went_at); };
  if (!std::exchange(entrant.has_begun, true)) {
    entrant.span.began_s = now_s();
    entrant.run->begin();
  }
  entrant.is_over = !entrant.run->go_on(entrant.turn_steps);
  entrant.span.ended_s = now_s();
}

void Worker::take_turns(const message::Assign& assign, ProcessGroup& group, const Waiter& waiter) {
  std::vector<Entrant> entrants = entrants_of(assign, group, waiter);
  MeasureHooks hooks = hooks_for(assign, entrants.front().injection, waiter);
  // Nobody can tell whose energy it was.
  if (entrants.size() > 1) hooks.joules = nullptr;
  const std::function<void()> ready = std::exchange(hooks.ready, nullptr);
  MeasureOptions options = context_.measure;
  options.trial_budget_s *= assign.slice_share;
  const bool is_leader = group.group_rank() == 0;
  const auto tell_turn = [&](std::size_t place) {
    turn_ = static_cast<int>(place);
    if (is_leader && entrants.size() > 1) tell_progress();
  };
  for (std::size_t place = 0; place < entrants.size(); ++place) {
    Entrant& entrant = entrants[place];
    tell_turn(place);
    built_->use(entrant.step);
    const MemoryFault memory(*context_.device, entrant.injection.fault);
    entrant.run = std::make_unique<MeasuredRun>(*entrant.workload, group, options, hooks,
                                                KeptRun{.steps = entrant.step->steps});
    entrant.is_over = !entrant.run->build();
  }
  const auto is_over = [](const Entrant& entrant) { return entrant.is_over; };
  for (auto other = entrants.begin() + 1; other != entrants.end(); ++other)
    other->injection.commit(FaultMoment::ready, waiter);
  if (!std::ranges::all_of(entrants, is_over)) ready();
  const SteadyClock::time_point went_at = SteadyClock::now();
  std::vector<Measurement> measurements(entrants.size());
  bool is_stopped = false;
  const auto conclude = [&](std::size_t place) {
    Entrant& entrant = entrants[place];
    entrant.step->steps = entrant.run->steps_made();
    measurements[place] = entrant.run->end();
    is_stopped = measurements[place].status == Status::raced_out;
  };
  for (std::size_t place = 0; place < entrants.size(); ++place)
    if (entrants[place].is_over) conclude(place);
  // A B C C B A: what changes slowly is the same for all.
  for (bool is_forth = true; !is_stopped && !std::ranges::all_of(entrants, is_over);
       is_forth = !is_forth) {
    for (std::size_t i = 0; i < entrants.size() && !is_stopped; ++i) {
      const std::size_t place = is_forth ? i : entrants.size() - 1 - i;
      if (entrants[place].is_over) continue;
      tell_turn(place);
      take_turn(entrants[place], went_at);
      if (entrants[place].is_over) conclude(place);
    }
  }
  report_turns(assign, entrants, std::move(measurements), is_leader);
}

void Worker::report_turns(const message::Assign& assign, std::vector<Entrant>& entrants,
                          std::vector<Measurement> measurements, bool is_leader) {
  message::Outcome outcome;
  for (std::size_t place = 0; place < entrants.size(); ++place) {
    Entrant& entrant = entrants[place];
    Measurement& measurement = measurements[place];
    if (!entrant.is_over) {
      measurement.status = Status::raced_out;
      measurement.reason = "stopped with another finalist";
    }
    // Who was stopped before its end has steps that are not counted.
    const bool stays = measurement.status == Status::ok;
    entrant.run.reset();
    if (!stays) built_->drop(entrant.step->experiment);
    outcome.spans.push_back(entrant.span);
    message::Outcome one = outcome_of(assign.world_ranks, std::move(measurement), {});
    outcome.choices.insert(one.choices.begin(), one.choices.end());
    if (place == 0)
      outcome.measurement = std::move(one.measurement);
    else
      outcome.others.push_back(std::move(one.measurement));
  }
  outcome.attempt = attempt_;
  if (entrants.size() == 1) outcome.spans.clear();  // its attempt is its own
  if (is_leader) send(outcome);
}

}  // namespace dstune
