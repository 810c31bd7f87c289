#include <cstdlib>
#include <iterator>
#include <stdexcept>
#include <string>
#include <string_view>

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
bool has_avx2() {
  return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
         __builtin_cpu_supports("f16c") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2");
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

std::uint64_t counter_hash(std::uint64_t seed, std::uint64_t stream, std::uint64_t index) {
  return hash_at(hash_offset(seed, stream), index);
}

}  // namespace dstune::kernels
