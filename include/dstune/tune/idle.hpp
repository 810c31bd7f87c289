#pragma once
/// How controller and idle workers wait for messages: attentive just after one, then asleep most of
/// the time, so that they take nothing from ranks that measure (a poll every 20 µs costs a
/// neighbour 2–3 %). Local.

#include <chrono>
#include <thread>

#include <sched.h>

namespace dstune {

class Idle {
 public:
  void reset() { rounds_ = 0; }
  void pause() {
    ++rounds_;
    if (rounds_ <= yields) {
      sched_yield();
    } else if (rounds_ <= yields + short_sleeps) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    } else if (rounds_ <= yields + short_sleeps + sleeps) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  static constexpr int yields = 20;
  static constexpr int short_sleeps = 200;  // 10 ms and more
  static constexpr int sleeps = 50;         // 0.1 s and more
  int rounds_ = 0;
};

}  // namespace dstune
