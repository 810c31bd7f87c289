#include "control/job_end.hpp"

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <initializer_list>
#include <limits>

namespace dstune {
namespace {

// Whichever thread takes the signal, the controller's looks at them.
std::atomic<int> count = 0;
static_assert(std::atomic<int>::is_always_lock_free,
              "or a handler might wait for what it interrupts");

extern "C" void count_signal(int /*number*/) {
  ++count;
}

}  // namespace

void count_stop_signals() {
  struct sigaction action = {};
  action.sa_handler = count_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGXCPU}) {
    sigaction(number, &action, nullptr);
  }
}

int stop_signals() {
  return count;
}

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

std::string JobEnd::reason(Moment now) const {
  if (num_signals() > 0) return "a signal to stop";
  return end_at_ && now.steady >= *end_at_ ? "the time limit" : "";
}

double JobEnd::time_left_s(Moment now) const {
  if (!end_at_) return std::numeric_limits<double>::infinity();
  return seconds(*end_at_ - now.steady);
}

}  // namespace dstune
