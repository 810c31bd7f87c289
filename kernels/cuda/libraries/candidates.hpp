#pragma once
/// Which of a library's candidates serves, by its time on the GPU, and what is noted where none
/// does.

#include <algorithm>
#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include <cublasLt.h>
#include <cudnn_graph.h>

namespace dstune::kernels::cuda {

/// What the libraries' callers need of the GPU; the tests have another one.
class Gpu {
 public:
  Gpu() = default;
  virtual ~Gpu() = default;
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  /// The calling thread's device and stream.
  virtual int device() = 0;
  virtual cudaStream_t stream() = 0;
  /// Whether the stream records a graph, so that nothing can be waited for.
  virtual bool is_recording() = 0;

  /// The time that the work takes on the stream; waits for it.
  virtual double seconds_of(const std::function<void()>& work) = 0;

  /// Memory on the device, or null where there is too little.
  virtual void* take(std::size_t bytes) = 0;
  virtual void give_back(void* memory) = 0;
  /// What of the device's memory is free.
  virtual std::size_t free_bytes() = 0;
};

/// The one through CUDA's runtime; kept apart from the libraries' callers, as all that calls it.
Gpu& real_gpu();

enum class Choice {
  fastest,       ///< by the clock
  reproducible,  ///< the fastest of those that give the same bits each time
  first          ///< of those, the one that the library names first
};

/// Sorts candidates by the time of execute(candidate), which gives whether it works; those that do
/// not are left out. Executes each of them several times, which must change nothing, and waits: all
/// of them once, then the best few in turns, so that a clock that changes concerns all alike.
/// Returns the seconds of the fastest; infinity where none works. Where something is thrown they
/// stay as they were.
template <class Candidate, class Execute>
double sort_by_time(Gpu& gpu, std::vector<Candidate>& candidates, Execute&& execute) {
  constexpr std::size_t max_finalists = 4;
  constexpr int turns = 3;
  constexpr int runs_a_turn = 2;
  std::vector<std::pair<double, std::size_t>> timed;
  const auto seconds_of = [&](std::size_t index, int runs, bool& works) {
    return gpu.seconds_of([&] {
      for (int run = 0; run < runs; ++run) works = execute(candidates[index]) && works;
    }) / runs;
  };
  for (std::size_t index = 0; index < candidates.size(); ++index) {
    // The first run may load code.
    bool works = execute(candidates[index]);
    if (!works) continue;
    const double seconds = seconds_of(index, 1, works);
    if (works) timed.emplace_back(seconds, index);
  }
  std::sort(timed.begin(), timed.end());
  const std::size_t finalists = timed.size() > 1 ? std::min(timed.size(), max_finalists) : 0;
  for (int turn = 0; turn < turns; ++turn) {
    for (std::size_t place = 0; place < finalists; ++place) {
      bool works = true;
      const double seconds = seconds_of(timed[place].second, runs_a_turn, works);
      timed[place].first = turn == 0 ? seconds : std::min(timed[place].first, seconds);
    }
  }
  std::sort(timed.begin(), timed.begin() + static_cast<std::ptrdiff_t>(finalists));
  std::vector<Candidate> sorted;
  for (const auto& [seconds, index] : timed) sorted.push_back(std::move(candidates[index]));
  candidates = std::move(sorted);
  return timed.empty() ? std::numeric_limits<double>::infinity() : timed.front().first;
}

// What a library was to do and did not, so that kernels of our own served it: without tensor cores,
// which whoever reads the times has to know.

/// Notes it, each time that it happens.
void note_refusal(const std::string& what);
/// The notes since the last call, each once, in order.
std::vector<std::string> take_refusals();

/// Throws CudaOutOfMemory where a status says, or may hide, that the GPU's memory is used up. Our
/// own kernel, which serves what a library refuses, would only hide that, and serve the shape for
/// as long as the process lives. A library that fails may have found no memory for the code that
/// its kernel loads at the first launch: its manual does not say with which status it reports that.
void throw_if_out_of_memory(Gpu& gpu, cublasStatus_t status);
void throw_if_out_of_memory(Gpu& gpu, cudnnStatus_t status);

}  // namespace dstune::kernels::cuda
