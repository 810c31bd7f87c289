#pragma once
/// A GPU for those who call libraries that are fakes, too.

#include <cstddef>
#include <cstdlib>
#include <functional>

#include "libraries/candidates.hpp"

namespace dstune::kernels::test {

/// How often a candidate that is not left out runs before it serves: as one of all, which may load
/// code and is timed once, and as a finalist in three turns of two.
inline constexpr int runs_of_finalist = 1 + 1 + 3 * 2;
/// Timings for so many candidates, of which four are finalists at most.
constexpr int timings_of(int candidates) {
  return candidates == 1 ? 1 : candidates + 3 * (candidates < 4 ? candidates : 4);
}

class FakeGpu : public cuda::Gpu {
 public:
  int device() override { return device_number; }
  cudaStream_t stream() override { return reinterpret_cast<cudaStream_t>(&stream_place_); }
  bool is_recording() override { return recording; }
  double seconds_of(const std::function<void()>& work) override {
    ++timings;
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

  int device_number = 0;
  bool recording = false;
  std::size_t free_memory_bytes = std::size_t{1} << 40;
  /// What the work just timed took.
  std::function<double()> clock = [] { return 1.0; };
  int timings = 0;
  int taken = 0;  ///< and not given back

 private:
  char stream_place_ = 0;
};

}  // namespace dstune::kernels::test
