#pragma once
/// When a running job writes the files that tell where it is: status.json and the page. Local.

#include <algorithm>
#include <chrono>

#include "dstune/report/job_state.hpp"
#include "watch/waiting.hpp"

namespace dstune {

class ShowTimes {
 public:
  /// `began`: of the job, whose first page comes an interval later.
  explicit ShowTimes(SteadyClock::time_point began) : page_at_(began + page_interval) {}

  /// Every two seconds, and at once in a new phase.
  [[nodiscard]] bool is_state_due(TuningPhase phase, SteadyClock::time_point now) {
    if (phase == phase_ && now < state_at_) return false;
    phase_ = phase;
    state_at_ = now + state_interval;
    return true;
  }

  [[nodiscard]] bool is_page_due(SteadyClock::time_point now) const { return now >= page_at_; }
  /// The larger a page is, the rarer it is: it takes less than a hundredth of the processor's time.
  void note_page(SteadyClock::time_point now, std::chrono::nanoseconds processor_time) {
    constexpr int share = 110;
    page_at_ = now + std::max<std::chrono::nanoseconds>(page_interval, share * processor_time);
  }

 private:
  static constexpr std::chrono::seconds state_interval{2};
  static constexpr std::chrono::seconds page_interval{10};
  TuningPhase phase_ = TuningPhase::done;
  SteadyClock::time_point state_at_{};
  SteadyClock::time_point page_at_;
};

}  // namespace dstune
