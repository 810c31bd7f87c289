#pragma once
/// Which of a library's candidates serves, by its time on the GPU.

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

/// The GPU as the libraries' callers need it; the tests have another one.
class Gpu {
 public:
  Gpu() = default;
  virtual ~Gpu() = default;
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;

  /// The calling thread's device and stream.
  virtual int device() = 0;
  /// The device's name and compute capability: "NVIDIA H200 9.0".
  virtual std::string name() = 0;
  virtual cudaStream_t stream() = 0;
  /// Tells whether the stream records a graph, so that nothing can be waited for.
  virtual bool is_recording() = 0;

  /// The time that the work takes on the stream; waits for it.
  virtual double seconds_of(const std::function<void()>& work) = 0;

  /// Memory on the device, or null where there is too little.
  virtual void* take(std::size_t bytes) = 0;
  virtual void give_back(void* memory) = 0;
  /// The free bytes of the device's memory.
  virtual std::size_t free_bytes() = 0;
  /// The size of the cache that all multiprocessors share.
  virtual std::size_t cache_bytes() = 0;
  /// Writes all of it on the stream, and does not wait.
  virtual void fill(void* memory, std::size_t bytes) = 0;
};

/// The one through CUDA's runtime; kept apart from the libraries' callers, as all that calls it.
Gpu& real_gpu();

enum class Choice {
  fastest,       ///< by the clock
  reproducible,  ///< the fastest of those that give the same bits each time
  first          ///< of those, the one that the library names first
};

/// Empties the GPU's cache: in a step operands come from memory, since much else was read and
/// written since they were. Takes twice the cache's size of the GPU's memory for as long as it
/// lives, and does nothing where less than twice that is free.
class CacheFlush {
 public:
  explicit CacheFlush(Gpu& gpu) : gpu_(gpu), bytes_(2 * gpu.cache_bytes()) {
    if (bytes_ > 0 && gpu.free_bytes() >= 2 * bytes_) memory_ = gpu.take(bytes_);
  }
  ~CacheFlush() {
    if (memory_ != nullptr) gpu_.give_back(memory_);
  }
  CacheFlush(const CacheFlush&) = delete;
  CacheFlush& operator=(const CacheFlush&) = delete;

  void operator()() const {
    if (memory_ != nullptr) gpu_.fill(memory_, bytes_);
  }

 private:
  Gpu& gpu_;
  std::size_t bytes_;
  void* memory_ = nullptr;
};

/// Sorts candidates by the time of execute(candidate), which gives whether it works; those that do
/// not are left out. Executes each of them several times, which must change nothing, and waits: all
/// of them once, then the best few in turns, so that a clock that changes concerns all alike. Each
/// run that is timed begins with an empty cache (CacheFlush). Returns the seconds of the fastest;
/// infinity where none works. They stay as they were if something is thrown.
template <class Candidate, class Execute>
double sort_by_time(Gpu& gpu, std::vector<Candidate>& candidates, Execute&& execute) {
  constexpr std::size_t max_finalists = 4;
  constexpr int turns = 6;
  const CacheFlush flush(gpu);
  std::vector<std::pair<double, std::size_t>> timed;
  const auto seconds_of = [&](std::size_t index, bool& works) {
    flush();
    return gpu.seconds_of([&] { works = execute(candidates[index]) && works; });
  };
  for (std::size_t index = 0; index < candidates.size(); ++index) {
    // The first run may load code.
    bool works = execute(candidates[index]);
    if (!works) continue;
    const double seconds = seconds_of(index, works);
    if (works) timed.emplace_back(seconds, index);
  }
  std::sort(timed.begin(), timed.end());
  const std::size_t finalists = timed.size() > 1 ? std::min(timed.size(), max_finalists) : 0;
  for (int turn = 0; turn < turns; ++turn) {
    for (std::size_t place = 0; place < finalists; ++place) {
      bool works = true;
      const double seconds = seconds_of(timed[place].second, works);
      timed[place].first = turn == 0 ? seconds : std::min(timed[place].first, seconds);
    }
  }
  std::sort(timed.begin(), timed.begin() + static_cast<std::ptrdiff_t>(finalists));
  std::vector<Candidate> sorted;
  for (const auto& [seconds, index] : timed) sorted.push_back(std::move(candidates[index]));
  candidates = std::move(sorted);
  return timed.empty() ? std::numeric_limits<double>::infinity() : timed.front().first;
}

/// Throws CudaOutOfMemory where a status says, or may hide, that the GPU's memory is used up: that
/// is no refusal. A library that fails may have found no memory for the code that its kernel loads
/// at the first launch: its manual does not say with which status it reports that.
void throw_if_out_of_memory(Gpu& gpu, cublasStatus_t status);
void throw_if_out_of_memory(Gpu& gpu, cudnnStatus_t status);

}  // namespace dstune::kernels::cuda
