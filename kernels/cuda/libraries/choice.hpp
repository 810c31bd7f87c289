#pragma once
/// Which of a library's candidates serves.

#include <algorithm>
#include <utility>
#include <vector>

#include "libraries/gpu.hpp"

namespace dstune::kernels::cuda {

enum class Choice {
  fastest,       ///< by the clock
  reproducible,  ///< the fastest of those that give the same bits each time
  first          ///< of those, the one that the library names first
};

/// Sorts candidates by the time of execute(candidate), which gives whether it works; those that do
/// not are left out. Executes each of them several times, which must change nothing, and waits.
/// Where something is thrown they stay as they were.
template <class Candidate, class Execute>
void sort_by_time(Gpu& gpu, std::vector<Candidate>& candidates, Execute&& execute) {
  constexpr int timed_runs = 5;
  std::vector<std::pair<double, std::size_t>> timed;
  for (std::size_t index = 0; index < candidates.size(); ++index) {
    // The first run may load code.
    bool works = execute(candidates[index]);
    if (!works) continue;
    const double seconds = gpu.seconds_of([&] {
      for (int run = 0; run < timed_runs; ++run) works = execute(candidates[index]) && works;
    });
    if (works) timed.emplace_back(seconds, index);
  }
  std::sort(timed.begin(), timed.end());
  std::vector<Candidate> sorted;
  for (const auto& [seconds, index] : timed) sorted.push_back(std::move(candidates[index]));
  candidates = std::move(sorted);
}

}  // namespace dstune::kernels::cuda
