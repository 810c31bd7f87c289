#include "control/failures.hpp"

#include <algorithm>
#include <functional>
#include <utility>

#include <fmt/format.h>

#include "control/progress_text.hpp"
#include "dstune/ranking/answer.hpp"

namespace dstune {
namespace {

/// Reasons that a line each is spent on at a time.
constexpr std::size_t max_groups = 5;

}  // namespace

bool FailureCounts::add(Status status, const std::string& reason) {
  const auto [found, is_new] = groups_.try_emplace({status, without_numbers(reason)});
  Group& group = found->second;
  if (is_new) {
    group = {reason, true, 0};
    return true;
  }
  ++group.num_untold;
  is_any_untold_ = true;
  return false;
}

void FailureCounts::leave_untold(Status status, const std::string& reason) {
  Group& group = groups_.at({status, without_numbers(reason)});
  group.was_told = false;
  ++group.num_untold;
  is_any_untold_ = true;
}

std::vector<std::string> FailureCounts::due(SteadyClock::time_point now) {
  if (!is_any_untold_) {
    told_at_ = now;
    return {};
  }
  if (told_at_ && now - *told_at_ < interval) return {};
  told_at_ = now;
  return rest();
}

std::vector<std::string> FailureCounts::rest() {
  std::vector<std::pair<Status, Group*>> untold;
  for (auto& [key, group] : groups_)
    if (group.num_untold > 0) untold.emplace_back(key.first, &group);
  std::ranges::stable_sort(untold, std::ranges::greater(),
                           [](const auto& one) { return one.second->num_untold; });
  std::vector<std::string> lines;
  std::size_t num_others = 0;
  for (const auto& [status, group] : untold) {
    const std::size_t count = std::exchange(group->num_untold, 0);
    if (lines.size() == max_groups) {
      num_others += count;
      continue;
    }
    lines.push_back(
        progress_text::more_failures(count, status, group->first_reason, group->was_told));
    group->was_told = true;
  }
  if (num_others > 0) lines.push_back(progress_text::other_failures(num_others));
  is_any_untold_ = false;
  return lines;
}

}  // namespace dstune
