#include "micro_steps.hpp"

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <string>

#include "dstune/base/error.hpp"
#include "dstune/base/log.hpp"

namespace dstune::train {
namespace {

void say_once(const std::string& why_not) {
  static std::once_flag said;
  std::call_once(said, [&] {
    log::warning("micro-steps are not launched as graphs: " +
                 (why_not.empty() ? "another rank can not capture them" : why_not));
  });
}

}  // namespace

void MicroSteps::run(std::size_t segment, bool is_warm) {
  const Dispatch::Recorded& recorded = recorded_[segment];
  const bool is_replayed =
      is_warm && are_recorded() && (dispatch_.is_current(recorded) || record(segment));
  if (is_replayed) {
    dispatch_.replay(recorded);
  } else {
    dispatch_.run(plan_.cycle[segment].steps);
  }
}

bool MicroSteps::are_recorded() {
  if (!device_.is_asynchronous()) return false;
  if (!is_agreed_) are_recorded_ = holds_on_all_ranks(can_be_recorded());
  is_agreed_ = true;
  return are_recorded_;
}

bool MicroSteps::can_be_recorded() const {
  return device_.queues().recorder() != nullptr && group_.is_recordable() &&
         std::ranges::all_of(plan_.cycle, [](const Segment& segment) {
           return !is_micro_step(segment.kind) || Dispatch::is_recordable(segment.steps);
         });
}

bool MicroSteps::holds_on_all_ranks(bool mine) {
  const std::vector<double> all = group_.exchange(std::array{mine ? 1.0 : 0.0});
  return std::ranges::find(all, 0.0) == all.end();
}

std::int64_t MicroSteps::recording_bytes() const {
  std::int64_t bytes = 0;
  for (const Dispatch::Recorded& recorded : recorded_) bytes += recorded.device_bytes;
  return bytes;
}

bool MicroSteps::record(std::size_t segment) {
  // What goes may be under way.
  device_.queues().finish_all();
  recorded_[segment] = {};
  const std::optional<std::int64_t> taken_before = device_.taken_bytes();
  std::string why_not;
  try {
    recorded_[segment] = dispatch_.record(plan_.cycle[segment].steps);
  } catch (const CollectiveError&) {
    throw;
  } catch (const LogicError&) {
    throw;
  } catch (const std::runtime_error& error) {
    // A communicator that was given up carries no micro-step at all.
    if (!group_.is_recordable()) throw;
    why_not = error.what();
  }
  const std::optional<std::int64_t> taken_after = device_.taken_bytes();
  if (taken_before && taken_after)
    recorded_[segment].device_bytes = std::max<std::int64_t>(0, *taken_after - *taken_before);
  are_recorded_ = holds_on_all_ranks(why_not.empty());
  if (!are_recorded_) {
    say_once(why_not);
    recorded_ = std::vector<Dispatch::Recorded>(plan_.cycle.size());
  }
  return are_recorded_;
}

}  // namespace dstune::train
