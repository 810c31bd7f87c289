// Numbers of 8 or 4 bits with a scale for each run of them: ZeRO++'s traffic.
#include "common/formulas.hpp"
#include "common/functions.hpp"
#include "isa/parallel.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

typedef std::int8_t Codes __attribute__((vector_size(lanes)));

/// Room for a vector's codes, one a byte, of which the first `count` are.
inline void store_codes(std::uint8_t* to, std::int64_t index, Codes codes, std::int64_t count,
                        int bits) {
  if (bits == 8) {
    __builtin_memcpy(to + index, &codes, static_cast<std::size_t>(count));
    return;
  }
  for (std::int64_t lane = 0; lane < count; lane += 2) {
    to[(index + lane) / 2] = byte_of(codes[lane], codes[lane + 1]);
  }
}

inline Vector load_codes(const std::uint8_t* from, std::int64_t index, std::int64_t count,
                         int bits) {
  Codes codes{};
  if (bits == 8) {
    __builtin_memcpy(&codes, from + index, static_cast<std::size_t>(count));
  } else {
    for (std::int64_t lane = 0; lane < count; lane += 2) {
      const int both = from[(index + lane) / 2];
      codes[lane] = low_code(both);
      codes[lane + 1] = high_code(both);
    }
  }
  return __builtin_convertvector(__builtin_convertvector(codes, Integers), Vector);
}

/// NaN where one of them is not finite.
template <class T>
float largest_magnitude(const T* x, std::int64_t count) {
  Vector largest{};
  Vector non_finite{};  // 0 or NaN
  for_vectors(0, count, [&](std::int64_t i, auto extent) {
    const Vector value = to_half(load(x + i, extent));
    largest = larger(largest, larger(value, -value));
    non_finite += value - value;
  });
  return largest_lane(largest) + sum_of_lanes(non_finite);
}

}  // namespace

void quantize(DType from, int bits, void* codes, float* scales, const void* x, std::int64_t count,
              std::int64_t group_elements) {
  auto* const to = static_cast<std::uint8_t*>(codes);
  with_type(from, [&](auto tag) {
    const auto* const values = static_cast<const decltype(tag)*>(x);
    for_items(count / group_elements, group_elements, [&](std::int64_t group) {
      const std::int64_t first = group * group_elements;
      const float magnitude = largest_magnitude(values + first, group_elements);
      const float factor = factor_of_run(magnitude, bits);
      scales[group] = 1 / factor;
      for_vectors(first, first + group_elements, [&](std::int64_t i, auto extent) {
        const Vector whole = codes_of(load(values + i, extent), factor, bits);
        store_codes(to, i, __builtin_convertvector(__builtin_convertvector(whole, Integers), Codes),
                    extent.count, bits);
      });
    });
  });
}

void dequantize(DType to, int bits, void* y, const void* codes, const float* scales,
                std::int64_t count, std::int64_t group_elements, int parts, int divisor) {
  const auto* const from = static_cast<const std::uint8_t*>(codes);
  const std::int64_t groups = count / group_elements;
  with_type(to, [&](auto tag) {
    auto* const values = static_cast<decltype(tag)*>(y);
    for_items(groups, parts * group_elements, [&](std::int64_t group) {
      const std::int64_t first = group * group_elements;
      for_vectors(first, first + group_elements, [&](std::int64_t i, auto extent) {
        Vector sum{};
        for (std::int64_t part = 0; part < parts; ++part) {
          const Vector code = load_codes(from, part * count + i, extent.count, bits);
          sum += to_half(code * scales[part * groups + group]);
        }
        store(values + i, sum / static_cast<float>(divisor), extent);
      });
    });
  });
}

}  // namespace dstune::kernels::DSTUNE_ISA
