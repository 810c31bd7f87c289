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

// Blocks of sums stay in the first-level cache while the parts pass by.
constexpr std::int64_t block = 1024;

template <class T>
DSTUNE_INLINE void start_sum(float* __restrict sum, const T* a, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = to_float(a[i]);
}

template <class T>
DSTUNE_INLINE void start_sum(float* __restrict sum, const T* a, const T* b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = to_float(a[i]) + to_float(b[i]);
}

template <class T>
DSTUNE_INLINE void add(float* __restrict sum, const T* a, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] += to_float(a[i]);
}

template <class T>
DSTUNE_INLINE void add(float* __restrict sum, const T* a, const T* b, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) sum[i] = (sum[i] + to_float(a[i])) + to_float(b[i]);
}

template <class T>
DSTUNE_INLINE void divide(T* __restrict out, const float* sum, float divisor, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) from_float(out[i], sum[i] / divisor);
}

template <class T>
DSTUNE_INLINE void average_as(void* out, std::span<const void* const> parts, std::int64_t count,
                              Write write) {
  alignas(64) float sum[block];
  alignas(64) T means[block];
  const std::size_t size = parts.size();
  const auto divisor = static_cast<float>(size);
  for (std::int64_t first = 0; first < count; first += block) {
    const std::int64_t now = std::min(block, count - first);
    const auto part = [&](std::size_t p) { return static_cast<const T*>(parts[p]) + first; };
    std::size_t next = 2;
    if (size == 1) {
      start_sum(sum, part(0), now);
    } else {
      start_sum(sum, part(0), part(1), now);
    }
    for (; next + 1 < size; next += 2) add(sum, part(next), part(next + 1), now);
    if (next < size) add(sum, part(next), now);
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
void average_f32(void* out, std::span<const void* const> parts, std::int64_t count, Write write) {
  average_as<float>(out, parts, count, write);
}

DSTUNE_VECTOR_CLONES
void average_bf16(void* out, std::span<const void* const> parts, std::int64_t count, Write write) {
  average_as<BFloat16>(out, parts, count, write);
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

void average(void* out, std::span<const void* const> parts, std::int64_t count, DType type,
             Write write) {
  require(!parts.empty(), "an average of nothing");
  require(type == DType::f32 || type == DType::bf16, "averages are of f32 or bf16");
  if (type == DType::f32) {
    average_f32(out, parts, count, write);
  } else {
    average_bf16(out, parts, count, write);
  }
}

}  // namespace dstune
