#include "check/unfinished.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "check/check_text.hpp"
#include "dstune/base/log.hpp"
#include "dstune/base/output.hpp"
#include "dstune/comm/environment.hpp"
#include "watch/waiting.hpp"

namespace dstune {

void Unfinished::keep(const RankReport& report) {
  const std::lock_guard lock(mutex_);
  const auto place = std::ranges::lower_bound(reports_, report.rank, {}, &RankReport::rank);
  if (place != reports_.end() && place->rank == report.rank)
    *place = report;
  else
    reports_.insert(place, report);
}

void Unfinished::finish() {
  const std::lock_guard lock(mutex_);
  is_over_ = true;
}

void Unfinished::print(ExitCode code, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_over_, true) || !is_json_) return;
  Findings findings = findings_of(reports_, {});
  findings.failures.insert(findings.failures.begin(), fmt::format("{} ({})", reason, phase()));
  output() << check_json(reports_, findings, code).dump(2) << '\n';
  flush_output();
}

Deadline::Deadline(double limit_s, std::shared_ptr<Unfinished> known)
    : thread_([this, limit_s, known = std::move(known)] {
        std::unique_lock lock(mutex_);
        if (ended_.wait_for(lock, to_duration(limit_s), [this] { return is_over_; })) return;
        const std::string reason = fmt::format(
            "the check did not end within {:.0f} s: a rank or its device hangs; mpirun "
            "with fewer hosts finds which",
            limit_s);
        log::error(fmt::format("{} ({})", reason, known->phase()));
        known->print(ExitCode::no_device, reason);
        MpiEnvironment::abort(static_cast<int>(ExitCode::no_device));
      }) {}

Deadline::~Deadline() {
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

}  // namespace dstune
