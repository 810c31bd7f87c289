#include "dstune/base/wait.hpp"

#include <algorithm>
#include <string>
#include <thread>

#include <sched.h>

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

using namespace std::chrono_literals;

// Spinning answers in tens of nanoseconds; past this many rounds (a few microseconds) the core is
// offered: with nobody else on it that costs a fraction of one, and where the peer was put on the
// same core, which a count of cores can not tell, it is the only way to an answer.
constexpr int spin_rounds = 100;
constexpr auto ask_every = 1ms;
// A wait this long is for somebody's work, not for a message: a nap costs it nothing and takes the
// poller off the cores of those who measure.
constexpr auto sleep_after_shared = 1ms;
constexpr auto sleep_after_own = 50ms;
constexpr auto min_sleep = 50us;
constexpr auto max_sleep = 1ms;
// A nap is this part of the wait so far: what it adds to it is lost in it. Steps of a GPU are timed
// behind such waits, of a rank that has a core of its own.
constexpr int sleeps_per_shared_wait = 64;
constexpr int sleeps_per_own_wait = 512;

void spin() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void Waiter::look(Progress& progress, Clock::time_point now, const char* what) const {
  if (now >= deadline_) {
    throw CollectiveError(CollectiveError::Cause::deadline,
                          std::string(what) + ": deadline passed");
  }
  if (now - progress.asked < ask_every) return;
  progress.asked = now;
  if (aborted_ && aborted_()) {
    throw CollectiveError(CollectiveError::Cause::aborted, std::string(what) + ": aborted");
  }
}

void Waiter::pause(Progress& progress, const char* what) const {
  const int round = progress.round++;
  if (!share_core_ && round < spin_rounds) return spin();
  const Clock::time_point now = Clock::now();
  if (progress.began == Clock::time_point{}) {
    progress.began = now;
    progress.asked = now;
  }
  look(progress, now, what);
  if (now - progress.began > (share_core_ ? sleep_after_shared : sleep_after_own)) {
    const Clock::duration nap =
        (now - progress.began) / (share_core_ ? sleeps_per_shared_wait : sleeps_per_own_wait);
    std::this_thread::sleep_for(std::clamp<Clock::duration>(nap, min_sleep, max_sleep));
  } else {
    sched_yield();
  }
}

}  // namespace dstune
