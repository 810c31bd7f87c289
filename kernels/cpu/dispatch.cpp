// The part of the processor that is used: its instruction set and its threads.
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

#ifdef DSTUNE_X86_TABLES
#include <cpuid.h>
#endif
#include <omp.h>

#include "backend_parts.hpp"
#include "common/counter_hash.hpp"
#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels {

namespace portable {
extern const Table table;
}
#ifdef DSTUNE_X86_TABLES
namespace avx2 {
extern const Table table;
}
namespace avx512 {
extern const Table table;
}
namespace avx512_bf16 {
extern const Table table;
}
#endif

namespace {

struct Candidate {
  const Table& table;
  bool (*runs_here)();
};

#ifdef DSTUNE_X86_TABLES
/// clang 16's __builtin_cpu_supports has no word for it.
bool has_f16c() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c() &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
}

bool has_avx512() {
  return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("avx512vl");
}

bool has_avx512_bf16() {
  return has_avx512() && __builtin_cpu_supports("avx512bf16");
}
#endif

// Best first.
const Candidate candidates[] = {
#ifdef DSTUNE_X86_TABLES
    {avx512_bf16::table, has_avx512_bf16},
    {avx512::table, has_avx512},
    {avx2::table, has_avx2},
#endif
    {portable::table, [] { return true; }},
};

const Table& choose() {
  if (const char* wanted = std::getenv("DSTUNE_CPU_KERNELS")) {
    if (const Table* table = cpu_table(wanted)) return *table;
    throw std::invalid_argument(std::string("DSTUNE_CPU_KERNELS: no table '") + wanted +
                                "' for this processor");
  }
  const Candidate* best = std::begin(candidates);
  while (!best->runs_here()) ++best;
  return best->table;
}

std::atomic<int>& thread_count() {
  static std::atomic<int> count{omp_get_max_threads()};
  return count;
}

}  // namespace

const Table* cpu_table(const char* name) {
  for (const Candidate& candidate : candidates) {
    if (std::string_view(candidate.table.name) == name) {
      return candidate.runs_here() ? &candidate.table : nullptr;
    }
  }
  return nullptr;
}

const Table& cpu_table() {
  static const Table& table = choose();
  return table;
}

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

std::uint64_t counter_hash(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return hash_at(hash_offset(seed, stream), index);
}

}  // namespace dstune::kernels
