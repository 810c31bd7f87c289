// The thread sanitizer of g++ 12 does not know pthread_mutex_clocklock, by which std::timed_mutex
// waits on the steady clock: it would take the mutex for one that nobody holds. Here it is by a
// function that it knows.
#include <cerrno>
#include <ctime>

#include <pthread.h>

extern "C" int pthread_mutex_clocklock(pthread_mutex_t* mutex, clockid_t clock,
                                       const timespec* until) noexcept {
  constexpr long nanoseconds_a_second = 1'000'000'000;
  timespec now{}, limit{};
  if (clock_gettime(clock, &now) != 0 || clock_gettime(CLOCK_REALTIME, &limit) != 0) return EINVAL;
  limit.tv_sec += until->tv_sec - now.tv_sec;
  limit.tv_nsec += until->tv_nsec - now.tv_nsec;
  if (limit.tv_nsec < 0) {
    limit.tv_nsec += nanoseconds_a_second;
    --limit.tv_sec;
  } else if (limit.tv_nsec >= nanoseconds_a_second) {
    limit.tv_nsec -= nanoseconds_a_second;
    ++limit.tv_sec;
  }
  return pthread_mutex_timedlock(mutex, &limit);
}
