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
template <class Candidate, class Execute>
void sort_by_time(Gpu& gpu, std::vector<Candidate>& candidates, Execute&& execute) {
  constexpr int timed_runs = 5;
  std::vector<std::pair<double, Candidate>> timed;
  for (Candidate& candidate : candidates) {
    // The first run may load code.
    bool works = execute(candidate);
    if (!works) continue;
    const double seconds = gpu.seconds_of([&] {
      for (int run = 0; run < timed_runs; ++run) works = execute(candidate) && works;
    });
    if (works) timed.emplace_back(seconds, std::move(candidate));
  }
  std::stable_sort(timed.begin(), timed.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  candidates.clear();
  for (auto& [seconds, candidate] : timed) candidates.push_back(std::move(candidate));
}

}  // namespace dstune::kernels::cuda
