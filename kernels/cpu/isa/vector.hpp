#pragma once
/// A vector of floats as wide as the instruction set of this compilation, loaded from and stored to
/// float, bfloat16 or half precision. These files are compiled once for each table: everything here
/// has internal linkage and uses nothing inline of the standard library, or the linker could give
/// one processor's code to all.

#include <cstdint>

#if defined(__AVX512F__) || defined(__FMA__) || defined(__F16C__)
#include <immintrin.h>
#endif

namespace dstune::kernels::DSTUNE_ISA {
namespace {

#if defined(__AVX512F__)
constexpr std::int64_t lanes = 16;
#elif defined(__AVX2__)
constexpr std::int64_t lanes = 8;
#else
constexpr std::int64_t lanes = 4;
#endif

typedef float Vector __attribute__((vector_size(4 * lanes)));
typedef std::int32_t Integers __attribute__((vector_size(4 * lanes)));
typedef std::uint32_t Words __attribute__((vector_size(4 * lanes)));
typedef std::uint16_t HalfWords __attribute__((vector_size(2 * lanes)));

struct Bfloat16 {
  std::uint16_t bits;
};
/// IEEE 754 binary16.
struct Float16 {
  std::uint16_t bits;
};

/// How many lanes of a load or store count: all, or the first `count`.
struct Full {
  static constexpr std::int64_t count = lanes;
};
struct Part {
  std::int64_t count;
};

inline Vector splat(float value) {
  return Vector{} + value;
}
inline Integers splat(std::int32_t value) {
  return Integers{} + value;
}

/// The same bits.
inline Integers as_integers(Vector value) {
  return reinterpret_cast<Integers>(value);
}
inline Vector as_vector(Integers bits) {
  return reinterpret_cast<Vector>(bits);
}

/// 0, 1, 2, …
inline Integers lane_numbers() {
  Integers numbers;
  for (int lane = 0; lane < lanes; ++lane) numbers[lane] = lane;
  return numbers;
}

template <class Extent>
inline Vector load(const float* from, Extent extent) {
  Vector value{};
  __builtin_memcpy(&value, from, sizeof(float) * static_cast<std::size_t>(extent.count));
  return value;
}

template <class Extent>
inline void store(float* to, Vector value, Extent extent) {
  __builtin_memcpy(to, &value, sizeof(float) * static_cast<std::size_t>(extent.count));
}

inline Vector widen(Bfloat16 /*type*/, HalfWords bits) {
  return reinterpret_cast<Vector>(__builtin_convertvector(bits, Words) << 16);
}

/// Rounds to nearest, ties to even; a NaN stays one. AVX512_BF16 makes denormals zero.
inline HalfWords round_to(Bfloat16 /*type*/, Vector value) {
#if defined(__AVX512BF16__)
  const __m256bh rounded = _mm512_cvtneps_pbh(reinterpret_cast<__m512>(value));
  HalfWords bits;
  __builtin_memcpy(&bits, &rounded, sizeof(bits));
  return bits;
#else
  const Words bits = reinterpret_cast<Words>(value);
  const Words rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const Words quiet = (bits >> 16) | 0x40;
  return __builtin_convertvector(value == value ? rounded : quiet, HalfWords);
#endif
}

inline Vector widen(Float16 /*type*/, HalfWords bits) {
#if defined(__AVX512F__)
  // The plain intrinsics start from an undefined register, of which g++ 12 warns.
  return reinterpret_cast<Vector>(_mm512_maskz_cvtph_ps(0xffff, reinterpret_cast<__m256i>(bits)));
#elif defined(__F16C__)
  return reinterpret_cast<Vector>(_mm256_cvtph_ps(reinterpret_cast<__m128i>(bits)));
#else
  const Words wide = __builtin_convertvector(bits, Words);
  // The exponent stands in a float's place, and 2^112 makes up for the different biases; denormals
  // come out right too. The largest exponent stands for infinity and NaN.
  const Words magnitude = (wide & 0x7fff) << 13;
  const Words finite =
      reinterpret_cast<Words>(reinterpret_cast<Vector>(magnitude) * splat(0x1p112F));
  const Words value = (wide & 0x7c00) == 0x7c00 ? magnitude | 0x7f800000 : finite;
  return reinterpret_cast<Vector>(value | (wide & 0x8000) << 16);
#endif
}

/// To nearest, ties to even; too large becomes infinite, a NaN stays one.
inline HalfWords round_to(Float16 /*type*/, Vector value) {
#if defined(__AVX512F__)
  return reinterpret_cast<HalfWords>(_mm512_maskz_cvtps_ph(
      0xffff, reinterpret_cast<__m512>(value), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
#elif defined(__F16C__)
  return reinterpret_cast<HalfWords>(
      _mm256_cvtps_ph(reinterpret_cast<__m256>(value), _MM_FROUND_TO_NEAREST_INT));
#else
  const Words bits = reinterpret_cast<Words>(value);
  const Words magnitude = bits & 0x7fffffff;
  // The exponent's bias changes by 112; a carry of the rounding may lead to infinity.
  const Words normal = (magnitude - (112 << 23) + 0xfff + ((magnitude >> 13) & 1)) >> 13;
  // Below 2^-14 a half counts multiples of 2^-24, as a float does that lies between 0.5 and 1.
  const Words denormal =
      reinterpret_cast<Words>(reinterpret_cast<Vector>(magnitude) + splat(0.5F)) - 0x3f000000;
  const Words special = magnitude > 0x7f800000 ? Words{} + 0x7e00 : Words{} + 0x7c00;
  const Words finite = magnitude < 0x38800000 ? denormal : normal;
  const Words rounded = magnitude < 0x47800000 ? finite : special;
  return __builtin_convertvector(rounded | ((bits >> 16) & 0x8000), HalfWords);
#endif
}

/// A load of the 16-bit types.
template <class T, class Extent>
inline Vector load(const T* from, Extent extent) {
  HalfWords bits{};
  __builtin_memcpy(&bits, from, sizeof(T) * static_cast<std::size_t>(extent.count));
  return widen(T{}, bits);
}

template <class T, class Extent>
inline void store(T* to, Vector value, Extent extent) {
  const HalfWords bits = round_to(T{}, value);
  __builtin_memcpy(to, &bits, sizeof(T) * static_cast<std::size_t>(extent.count));
}

/// Rounded to half precision.
inline Vector to_half(Vector value) {
  return widen(Float16{}, round_to(Float16{}, value));
}

/// a·b + c, rounded once where the instruction set can.
inline Vector multiply_add(Vector a, Vector b, Vector c) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vector>(_mm512_fmadd_ps(
      reinterpret_cast<__m512>(a), reinterpret_cast<__m512>(b), reinterpret_cast<__m512>(c)));
#elif defined(__FMA__)
  return reinterpret_cast<Vector>(_mm256_fmadd_ps(
      reinterpret_cast<__m256>(a), reinterpret_cast<__m256>(b), reinterpret_cast<__m256>(c)));
#else
  return a * b + c;
#endif
}

inline Vector square_root(Vector value) {
#if defined(__AVX512F__)
  return reinterpret_cast<Vector>(_mm512_maskz_sqrt_ps(0xffff, reinterpret_cast<__m512>(value)));
#elif defined(__AVX2__)
  return reinterpret_cast<Vector>(_mm256_sqrt_ps(reinterpret_cast<__m256>(value)));
#else
  for (int lane = 0; lane < lanes; ++lane) value[lane] = __builtin_sqrtf(value[lane]);
  return value;
#endif
}

inline float square_root(float value) {
  return __builtin_sqrtf(value);
}

/// `value` in the lanes that count, `other` in the rest; the count may lie outside 0 … lanes.
inline Vector inside(Vector value, Full, Vector = Vector{}) {
  return value;
}
inline Vector inside(Vector value, Part extent, Vector other = Vector{}) {
  const Integers limit = splat(static_cast<std::int32_t>(extent.count));
  return lane_numbers() < limit ? value : other;
}

inline Vector larger(Vector a, Vector b) {
  return a > b ? a : b;
}
inline Vector smaller(Vector a, Vector b) {
  return a < b ? a : b;
}

inline float sum_of_lanes(Vector value) {
  for (int half = static_cast<int>(lanes) / 2; half > 0; half /= 2) {
    for (int lane = 0; lane < half; ++lane) value[lane] += value[lane + half];
  }
  return value[0];
}

inline float largest_lane(Vector value) {
  float largest = value[0];
  for (int lane = 1; lane < lanes; ++lane) largest = value[lane] > largest ? value[lane] : largest;
  return largest;
}

/// body(index, extent) for every vector of [begin, end), the last one partial where it must be.
template <class Body>
inline void for_vectors(std::int64_t begin, std::int64_t end, Body body) {
  std::int64_t index = begin;
  for (; index + lanes <= end; index += lanes) body(index, Full{});
  if (index < end) body(index, Part{end - index});
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
