#include "dstune/tune/stop_signals.hpp"

#include <atomic>
#include <csignal>
#include <initializer_list>

namespace dstune {
namespace {

// Whichever thread takes the signal, the controller's looks at them.
std::atomic<int> count = 0;
std::atomic<int> last = 0;
static_assert(std::atomic<int>::is_always_lock_free,
              "or a handler might wait for what it interrupts");

extern "C" void count_signal(int number) {
  last = number;
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

const char* last_stop_signal() {
  switch (last) {
    case SIGTERM:
      return "SIGTERM";
    case SIGINT:
      return "SIGINT";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGUSR2:
      return "SIGUSR2";
    case SIGXCPU:
      return "SIGXCPU";
    default:
      return "";
  }
}

}  // namespace dstune
