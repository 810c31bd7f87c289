#include "threads.hpp"

#include <algorithm>
#include <atomic>

#include <omp.h>

#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels {
namespace {

std::atomic<int>& thread_count() {
  static std::atomic<int> count{omp_get_max_threads()};
  return count;
}

}  // namespace

void set_cpu_threads(int threads) {
  thread_count() = std::max(threads, 1);
  // OpenMP's own setting belongs to the calling thread alone; matmul() repeats it where it runs.
  omp_set_num_threads(cpu_threads());
}

int cpu_threads() {
  return thread_count().load(std::memory_order_relaxed);
}

int threads_for(std::int64_t elements) {
  // Waking a team costs about as much as this many elements of a cheap loop.
  constexpr std::int64_t elements_per_thread = 8192;
  return static_cast<int>(
      std::clamp<std::int64_t>(elements / elements_per_thread, 1, cpu_threads()));
}

}  // namespace dstune::kernels
