#include "start/time_budget.hpp"

#include <fmt/format.h>

#include "dstune/base/log.hpp"
#include "dstune/base/text.hpp"
#include "dstune/core/log_text.hpp"
#include "start/launch_facts.hpp"

namespace dstune {

std::optional<TimeLimit> find_time_limit(const std::optional<double>& option_s,
                                         const std::function<const char*(const char*)>& variable,
                                         std::chrono::system_clock::time_point now) {
  if (option_s) return TimeLimit{*option_s, "--time-limit"};
  const double now_s = std::chrono::duration<double>(now.time_since_epoch()).count();
  for (const char* name : {"SLURM_JOB_END_TIME", "SCR_END_TIME", "FLUX_JOB_EXPIRATION"}) {
    const char* text = variable(name);
    if (text == nullptr) continue;
    char* end = nullptr;
    const double end_s = std::strtod(text, &end);
    if (end != text && *end == '\0' && end_s > 0) return TimeLimit{end_s - now_s, name};
  }
  return std::nullopt;
}

double TimeBudget::used_share() const {
  if (!end_at) return 0;
  const double all_s = seconds(*end_at - began);
  return all_s > 0 ? std::min(1.0, seconds(SteadyClock::now() - began) / all_s) : 1;
}

namespace {

/// A batch system has a limit for each of its jobs, whether it tells or not.
void say_no_limit() {
  const BatchSystem batch = find_batch_system(own_variable);
  if (batch == BatchSystem::none)
    log::info(log_text::no_time_limit);
  else
    log::info(fmt::format(log_text::no_time_limit_of_batch, to_text(batch), to_text(batch)));
}

}  // namespace

TimeBudget time_budget(const JobOptions& options) {
  const auto ago = std::chrono::duration_cast<std::chrono::system_clock::duration>(
      SteadyClock::now() - options.began);
  const auto limit =
      find_time_limit(options.time_limit_s, own_variable, std::chrono::system_clock::now() - ago);
  TimeBudget budget{.began = options.began};
  if (!limit) {
    if (!options.dry_run) say_no_limit();
    budget.reserve_s = options.reserve_s.value_or(TimeBudget::default_reserve_s);
    return budget;
  }
  const double left_s = std::min(limit->left_s, far_away_s);
  budget.reserve_s =
      options.reserve_s.value_or(std::clamp(left_s / 10, 0.0, TimeBudget::default_reserve_s));
  budget.end_at = options.began + to_duration(std::max(0.0, left_s - budget.reserve_s));
  log::info(fmt::format(log_text::time_limit, format_duration(limit->left_s), limit->source,
                        format_duration(budget.reserve_s)));
  return budget;
}

}  // namespace dstune
