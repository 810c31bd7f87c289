#include "dstune/tune/time_limit.hpp"

#include <cstdlib>

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

}  // namespace dstune
