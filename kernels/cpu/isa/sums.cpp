// Sums in double over fixed blocks, the blocks' sums added in order: the same for any number of
// threads.
#include "common/formulas.hpp"
#include "common/functions.hpp"
#include "isa/parallel.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

constexpr std::int64_t block_elements = 4096;
/// Blocks summed before their sums are added up; they wait on the stack.
constexpr std::int64_t round_blocks = 1024;

// Doubles as wide as a Vector, filled from half a Vector's floats.
constexpr std::int64_t double_lanes = lanes / 2;
typedef double Doubles __attribute__((vector_size(8 * double_lanes)));
typedef float HalfVector __attribute__((vector_size(4 * double_lanes)));
typedef std::uint16_t QuarterWords __attribute__((vector_size(2 * double_lanes)));
typedef std::uint32_t HalfVectorWords __attribute__((vector_size(4 * double_lanes)));

inline Doubles load_doubles(const float* from, std::int64_t count) {
  HalfVector values{};
  __builtin_memcpy(&values, from, sizeof(float) * static_cast<std::size_t>(count));
  return __builtin_convertvector(values, Doubles);
}

inline Doubles load_doubles(const Bfloat16* from, std::int64_t count) {
  QuarterWords bits{};
  __builtin_memcpy(&bits, from, sizeof(Bfloat16) * static_cast<std::size_t>(count));
  const HalfVectorWords words = __builtin_convertvector(bits, HalfVectorWords) << 16;
  return __builtin_convertvector(reinterpret_cast<HalfVector>(words), Doubles);
}

inline Doubles load_doubles(const Float16* from, std::int64_t count) {
  // The upper half of a whole vector goes unused; conversions are no bottleneck of this sum.
  const Vector wide = load(from, Part{count});
  HalfVector values;
  __builtin_memcpy(&values, &wide, sizeof(values));
  return __builtin_convertvector(values, Doubles);
}

template <class T, class Term>
double block_sum(const T* x, std::int64_t count, Term term) {
  constexpr int chains = 4;
  Doubles sums[chains] = {Doubles{}, Doubles{}, Doubles{}, Doubles{}};
  std::int64_t i = 0;
  for (; i + chains * double_lanes <= count; i += chains * double_lanes) {
    for (int chain = 0; chain < chains; ++chain) {
      sums[chain] += term(load_doubles(x + i + chain * double_lanes, double_lanes));
    }
  }
  for (; i < count; i += double_lanes) {
    const std::int64_t rest = count - i;
    sums[0] += term(load_doubles(x + i, rest < double_lanes ? rest : double_lanes));
  }
  const Doubles all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
  double sum = 0.0;
  for (int lane = 0; lane < static_cast<int>(double_lanes); ++lane) sum += all[lane];
  return sum;
}

template <class T, class Term>
double ordered_sum(const T* x, std::int64_t count, Term term) {
  double sum = 0.0;
  constexpr std::int64_t round_elements = round_blocks * block_elements;
  for (std::int64_t start = 0; start < count; start += round_elements) {
    const std::int64_t left = count - start;
    const std::int64_t elements = left < round_elements ? left : round_elements;
    const std::int64_t blocks = (elements + block_elements - 1) / block_elements;
    double block_sums[round_blocks];
    for_items(blocks, block_elements, [&](std::int64_t block) {
      const std::int64_t first = block * block_elements;
      const std::int64_t rest = elements - first;
      block_sums[block] =
          block_sum(x + start + first, rest < block_elements ? rest : block_elements, term);
    });
    for (std::int64_t block = 0; block < blocks; ++block) sum += block_sums[block];
  }
  return sum;
}

}  // namespace

void sum_of_squares(DType type, const void* x, std::int64_t count, double* sum) {
  with_type(type, [&](auto tag) {
    *sum += ordered_sum(static_cast<const decltype(tag)*>(x), count,
                        [](Doubles values) { return values * values; });
  });
}

void sum_f32(const float* x, std::int64_t count, double* sum) {
  *sum += ordered_sum(x, count, [](Doubles values) { return values; });
}

void clip_factor(const double* squares, std::int64_t count, double clip, double loss_scale,
                 double* norm, float* factor) {
  ClipFactor{squares, count, clip, loss_scale, norm, factor}.find();
}

}  // namespace dstune::kernels::DSTUNE_ISA
