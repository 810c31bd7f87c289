#include "average.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "dstune/base/error.hpp"

namespace dstune {
namespace {

// The sanitizers' run-time is not up yet when the loader chooses a clone.
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define DSTUNE_VECTOR_CLONES \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define DSTUNE_VECTOR_CLONES
#endif
#define DSTUNE_INLINE inline __attribute__((always_inline))

struct BFloat16 {
  std::uint16_t bits;
};
/// IEEE 754 binary16.
struct Float16 {
  std::uint16_t bits;
};

DSTUNE_INLINE float to_float(float value) {
  return value;
}
DSTUNE_INLINE float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

DSTUNE_INLINE void from_float(float& to, float value) {
  to = value;
}
DSTUNE_INLINE void from_float(BFloat16& to, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t rounded = (bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16;
  // Rounding would carry some NaNs over to infinity.
  const std::uint32_t quiet = (bits >> 16) | 0x40U;
  to.bits = static_cast<std::uint16_t>((bits & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}

// Halves without branches and without instructions of their own, so that every clone vectorises
// the loops over them.
DSTUNE_INLINE float to_float(Float16 value) {
  const std::uint32_t bits = value.bits;
  const std::uint32_t magnitude = (bits & 0x7fffU) << 13;
  // 2^112 makes up for the different biases of the exponents; denormals come out right, too.
  const auto finite = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112F);
  const std::uint32_t special = magnitude | 0x7f800000U;
  const std::uint32_t result = magnitude >= 0x0f800000U ? special : finite;
  return std::bit_cast<float>(result | (bits & 0x8000U) << 16);
}

DSTUNE_INLINE void from_float(Float16& to, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const std::uint32_t normal = (magnitude - (112U << 23) + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  // Below 2^-14 a half counts multiples of 2^-24, as a float does that lies between 0.5 and 1.
  const std::uint32_t denormal =
      std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5F) - 0x3f000000U;
  const std::uint32_t special = magnitude > 0x7f800000U ? 0x7e00U : 0x7c00U;
  const std::uint32_t finite = magnitude < 0x38800000U ? denormal : normal;
  const std::uint32_t result = magnitude < 0x47800000U ? finite : special;
  to.bits = static_cast<std::uint16_t>(result | (bits >> 16 & 0x8000U));
}

// Blocks of sums stay in the first-level cache while the parts pass by.
constexpr std::int64_t block = 1024;

// One part or two, from the left to the right.
template <class... Parts>
DSTUNE_INLINE void start_sum(float* __restrict sum, std::int64_t count, const Parts*... parts) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = (... + to_float(parts[i]));
}

template <class... Parts>
DSTUNE_INLINE void add(float* __restrict sum, std::int64_t count, const Parts*... parts) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = (sum[i] + ... + to_float(parts[i]));
}

template <class T>
DSTUNE_INLINE void divide(T* __restrict out, const float* sum, float divisor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) from_float(out[i], sum[i] / divisor);
}

template <class T>
DSTUNE_INLINE void divide_as(void* out, std::span<const void* const> parts, int by,
                             std::int64_t count, Write write) {
  alignas(64) float sum[block];
  alignas(64) T means[block];
  const std::size_t size = parts.size();
  const auto divisor = static_cast<float>(by);
  for (std::int64_t first = 0; first < count; first += block) {
    const std::int64_t now = std::min(block, count - first);
    const auto part = [&](std::size_t p) { return static_cast<const T*>(parts[p]) + first; };
    std::size_t next = 2;
    if (size == 1) {
      start_sum(sum, now, part(0));
    } else {
      start_sum(sum, now, part(0), part(1));
    }
    for (; next + 1 < size; next += 2) add(sum, now, part(next), part(next + 1));
    if (next < size) add(sum, now, part(next));
    T* const target = static_cast<T*>(out) + first;
    if (write == Write::cached) {
      divide(target, sum, divisor, now);
    } else {
      divide(means, sum, divisor, now);
      copy_bytes(target, means, static_cast<std::size_t>(now) * sizeof(T), write);
    }
  }
}

DSTUNE_VECTOR_CLONES
void divide_f32(void* out, std::span<const void* const> parts, int by, std::int64_t count,
                Write write) {
  divide_as<float>(out, parts, by, count, write);
}

DSTUNE_VECTOR_CLONES
void divide_bf16(void* out, std::span<const void* const> parts, int by, std::int64_t count,
                 Write write) {
  divide_as<BFloat16>(out, parts, by, count, write);
}

DSTUNE_VECTOR_CLONES
void divide_f16(void* out, std::span<const void* const> parts, int by, std::int64_t count,
                Write write) {
  divide_as<Float16>(out, parts, by, count, write);
}

}  // namespace

Write write_of(std::size_t total_bytes) {
  constexpr std::size_t beyond_caches = std::size_t{16} << 20;
  return total_bytes >= beyond_caches ? Write::streamed : Write::cached;
}

void copy_bytes(void* to, const void* from, std::size_t bytes, Write write) {
#if defined(__x86_64__)
  constexpr std::size_t line = 64;
  if (write == Write::streamed && bytes >= 4 * line) {
    const std::size_t head = (line - reinterpret_cast<std::uintptr_t>(to) % line) % line;
    std::memcpy(to, from, head);
    auto* target = static_cast<std::byte*>(to) + head;
    const auto* source = static_cast<const std::byte*>(from) + head;
    std::size_t left = bytes - head;
    for (; left >= line; left -= line, target += line, source += line) {
      const auto* lanes = reinterpret_cast<const __m128i*>(source);
      auto* out = reinterpret_cast<__m128i*>(target);
      const __m128i a = _mm_loadu_si128(lanes);
      const __m128i b = _mm_loadu_si128(lanes + 1);
      const __m128i c = _mm_loadu_si128(lanes + 2);
      const __m128i d = _mm_loadu_si128(lanes + 3);
      _mm_stream_si128(out, a);
      _mm_stream_si128(out + 1, b);
      _mm_stream_si128(out + 2, c);
      _mm_stream_si128(out + 3, d);
    }
    // Streamed stores are not ordered with those that tell others that the data is there.
    _mm_sfence();
    std::memcpy(target, source, left);
    return;
  }
#endif
  if (bytes > 0) std::memcpy(to, from, bytes);
}

void sum_and_divide(void* out, std::span<const void* const> parts, int divisor, std::int64_t count,
                    DType type, Write write) {
  require(!parts.empty(), "a sum of nothing");
  switch (type) {
    case DType::f32:
      return divide_f32(out, parts, divisor, count, write);
    case DType::bf16:
      return divide_bf16(out, parts, divisor, count, write);
    case DType::f16:
      return divide_f16(out, parts, divisor, count, write);
    case DType::i32:
    case DType::i8:
      break;
  }
  throw LogicError("averages are of floating-point numbers");
}

}  // namespace dstune
