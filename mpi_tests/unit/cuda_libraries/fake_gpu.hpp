#pragma once
/// A GPU for those who call libraries that are fakes, too.

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <functional>
#include <string>

#include "libraries/candidates.hpp"

namespace dstune::kernels::test {

/// How often a candidate that is not left out runs before it serves: as one of all, which may load
/// code and is timed once, and as a finalist in six turns.
inline constexpr int turns = 6;
inline constexpr int runs_of_finalist = 1 + 1 + turns;
/// Timings for so many candidates, of which four are finalists at most.
constexpr int timings_of(int candidates) {
  return candidates == 1 ? 1 : candidates + turns * (candidates < 4 ? candidates : 4);
}

class FakeGpu : public cuda::Gpu {
 public:
  int device() override { return device_number; }
  std::string name() override { return device_name; }
  cudaStream_t stream() override { return reinterpret_cast<cudaStream_t>(&stream_place_); }
  bool is_recording() override { return recording; }
  double seconds_of(const std::function<void()>& work) override {
    ++timings;
    events += 't';
    work();
    return clock();
  }
  void* take(std::size_t bytes) override {
    if (bytes > free_memory_bytes) return nullptr;
    ++taken;
    return std::malloc(bytes);
  }
  void give_back(void* memory) override {
    --taken;
    std::free(memory);
  }

  std::size_t free_bytes() override { return free_memory_bytes; }
  std::size_t cache_bytes() override { return size_of_cache; }
  void fill(void* memory, std::size_t bytes) override {
    events += 'f';
    filled_bytes = bytes;
    std::fill_n(static_cast<char*>(memory), bytes, '\0');
  }

  std::string device_name = "fake GPU 9.0";
  int device_number = 0;
  bool recording = false;
  std::size_t free_memory_bytes = std::size_t{1} << 40;
  /// What the work just timed took.
  std::function<double()> clock = [] { return 1.0; };
  int timings = 0;
  std::size_t size_of_cache = 1024;
  std::size_t filled_bytes = 0;  ///< at once
  std::string events;            ///< in order: 'f' a fill, 't' the begin of what is timed
  int taken = 0;                 ///< and not given back

 private:
  char stream_place_ = 0;
};

}  // namespace dstune::kernels::test
