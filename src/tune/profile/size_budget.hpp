#pragma once
/// Which sizes of collectives are timed: a slow link takes seconds for a large one.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "dstune/predict/work.hpp"

namespace dstune {

/// Small sizes first, and of every kind one that no link takes long for. Local.
[[nodiscard]] inline std::vector<Work> smallest_first(std::vector<Work> works) {
  constexpr std::int64_t first_bytes = 256 << 10;
  const auto by_size = [&] { std::ranges::stable_sort(works, {}, &Work::size); };
  by_size();
  for (std::size_t i = 0; i < works.size(); ++i) {
    const auto before = works.begin() + static_cast<std::ptrdiff_t>(i);
    if (before->size <= first_bytes || std::any_of(works.begin(), before, [&](const Work& one) {
          return is_same_curve(one, *before);
        }))
      continue;
    Work& small = works.emplace_back(works[i]);
    small.size = first_bytes;
    by_size();
  }
  return works;
}

/// Small sizes come first: their times tell what larger ones of the same kind take.
class SizeBudget {
 public:
  /// A timing is a call to warm up and three that count, at least.
  static constexpr int min_calls = 4;

  /// How often each of these calls may ask for the work, `most` at most, where so many seconds are
  /// left; 0: not at all. Repeats are for short ones and leave time for other sizes. Local.
  [[nodiscard]] int asks_within(const Work& work, double left_s, int most) const {
    constexpr double share_of_repeats = 1.0 / 16;
    const double all_s = min_calls * expected_s(work);
    if (all_s == 0) return most;
    if (all_s > left_s) return 0;
    return static_cast<int>(std::clamp(share_of_repeats * left_s / all_s, 1.0, 1.0 * most));
  }
  void add(const Work& work, double seconds) { times_.emplace_back(work, seconds); }

 private:
  /// In proportion to the last smaller one; 0 where there is none, which is timed in any case.
  [[nodiscard]] double expected_s(const Work& work) const {
    const auto last = std::find_if(times_.rbegin(), times_.rend(),
                                   [&](const auto& one) { return is_same_curve(one.first, work); });
    if (last == times_.rend()) return 0;
    return last->second * static_cast<double>(work.size) / static_cast<double>(last->first.size);
  }

  std::vector<std::pair<Work, double>> times_;
};

}  // namespace dstune
