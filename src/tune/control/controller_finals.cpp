// The controller's part in finals of finalists that stay built and take turns.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "control/controller.hpp"
#include "dstune/core/log_text.hpp"

namespace dstune {

/// In the first steps of a run of finalists, which are not timed, it is decided what follows.
void Controller::look_ahead() {
  if (!last_turns_ || is_stopping_ || !driver_.attempts().has_started(*last_turns_)) return;
  last_turns_.reset();
  agenda_.look_ahead(time_left_s());
}

/// Ranks give back what stays built of finalists of which this is so.
void Controller::release(const std::function<bool(std::size_t member)>& is_over) {
  std::erase_if(built_, [&](const auto& one) {
    const auto& [member, ranks] = one;
    if (!is_over(member)) return false;
    std::vector<int> there = ranks;
    std::erase_if(there, [&](int rank) { return driver_.attempts().lost_ranks().contains(rank); });
    driver_.attempts().release(there, planned(member).experiment.name);
    return true;
  });
}

/// Turns of all finalists take about as long.
int Controller::turn_steps(std::size_t member) const {
  const Policy::Repeating& policy = search_.scoreboard.policy().repeating;
  const double step_s = mean_step_s(search_.scoreboard.row(member).record->measurement);
  const double steps = step_s > 0 ? std::round(policy.turn_s / step_s) : 1;
  return static_cast<int>(std::clamp<double>(steps, policy.min_turn_steps, policy.max_turn_steps));
}

/// Finalists that take turns have the time of all of them.
Attempts::Limits Controller::limits_of(const Run& run) const {
  Attempts::Limits limits = policy_.limits(planned(run.member));
  for (const Turn& other : run.others) {
    const Attempts::Limits more = policy_.limits(planned(other.member));
    limits.inactivity_timeout_s += more.inactivity_timeout_s;
    // 0 is any time.
    limits.timeout_s =
        std::min(limits.timeout_s, more.timeout_s) > 0 ? limits.timeout_s + more.timeout_s : 0;
    limits.drain_timeout_s = std::max(limits.drain_timeout_s, more.drain_timeout_s);
  }
  return limits;
}

/// Whoever was stopped runs again, with the same command. Where the attempt was aborted that holds
/// for all but the one whose turn it was, and nothing stays built.
void Controller::take_turns(const Run& run, Attempts::Ended ended) {
  const std::vector<Turn> turns = turns_of(run);
  const auto taken = [&](const Turn& turn, Measurement measurement, std::size_t place) {
    const auto [began, over] = place < ended.spans.size()
                                   ? ended.spans[place]
                                   : std::pair(ended.started_at, ended.finished_at);
    record_repeat(turn.member,
                  {*run.repeat, turn.round, std::move(measurement), began, over, ended.is_alone});
  };
  const auto all = [](std::size_t) { return true; };
  if (ended.is_aborted) {
    release(all);
    const auto place =
        std::min(static_cast<std::size_t>(std::max(0, ended.turn)), run.others.size());
    if (!ended.is_cut_short) taken(turns[place], std::move(ended.measurement), place);
    agenda_.forget_rounds();
    return;
  }
  ended.others.insert(ended.others.begin(), std::move(ended.measurement));
  for (std::size_t place = 0; place < std::min(turns.size(), ended.others.size()); ++place) {
    Measurement& measurement = ended.others[place];
    if (measurement.status == Status::raced_out) continue;
    if (measurement.status != Status::out_of_memory || is_stopping_) {
      taken(turns[place], std::move(measurement), place);
      continue;
    }
    const std::string& name = planned(turns[place].member).experiment.name;
    log::warning(fmt::format(log_text::finalist_is_rebuilt, name, measurement.reason));
    release(all);
    agenda_.rebuild(turns[place]);
  }
}

}  // namespace dstune
