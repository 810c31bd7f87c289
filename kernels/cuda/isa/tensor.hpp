#pragma once
/// Tensors whose storage type is known when a kernel runs: a branch that a whole warp takes alike,
/// instead of one kernel for each type. A branch at each load would hold back the next load until
/// this one's numbers are there; with_known_types() is one branch before all of them.

#include <cstdint>

#include "common/function.hpp"
#include "common/functions.hpp"
#include "dstune/kernels/kernels.hpp"
#include "execution.hpp"
#include "isa/vector.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// Elements that a thread moves at a time where the addresses allow it: 16 bytes of a 16-bit type,
/// twice as many of float.
constexpr int pack = 8;
constexpr std::uintptr_t pack_alignment = 16;

/// N elements, widened.
template <int N>
struct Values {
  DSTUNE_FUNCTION Values& operator+=(const Values& terms) {
    for (int k = 0; k < N; ++k) of[k] += terms.of[k];
    return *this;
  }

  float of[N];
};

/// The elements that move at once: of 16-bit types words of two, so that all of a pack does on
/// every compiler.
template <class T, int N>
struct alignas(sizeof(T) * N) Chunk {
  T of[N];
};

template <int N, class T>
DSTUNE_FUNCTION Values<N> load_as(const T* from) {
  constexpr int most = 16 / static_cast<int>(sizeof(T));
  constexpr int size = N < most ? N : most;
  Values<N> values;
  for (int first = 0; first < N; first += size) {
    if constexpr (sizeof(T) == 2 && N > 1) {
      const auto words = at_once<Chunk<std::uint32_t, size / 2>>(from + first);
      for (int i = 0; i < size; i += 2)
        widen_two(T{}, words.of[i / 2], values.of[first + i], values.of[first + i + 1]);
    } else {
      const auto chunk = at_once<Chunk<T, size>>(from + first);
      for (int i = 0; i < size; ++i) values.of[first + i] = widened(chunk.of[i]);
    }
  }
  return values;
}

template <int N, class T>
DSTUNE_FUNCTION void store_as(T* to, const Values<N>& values) {
  constexpr int most = 16 / static_cast<int>(sizeof(T));
  constexpr int size = N < most ? N : most;
  for (int first = 0; first < N; first += size) {
    if constexpr (sizeof(T) == 2 && N > 1) {
      Chunk<std::uint32_t, size / 2> words;
      for (int i = 0; i < size; i += 2)
        words.of[i / 2] = two_rounded(T{}, values.of[first + i], values.of[first + i + 1]);
      at_once<Chunk<std::uint32_t, size / 2>>(to + first) = words;
    } else {
      Chunk<T, size> chunk;
      for (int i = 0; i < size; ++i) round_to(chunk.of[i], values.of[first + i]);
      at_once<Chunk<T, size>>(to + first) = chunk;
    }
  }
}

template <class T, int N>
DSTUNE_FUNCTION Values<N> rounded_to(Values<N> values) {
  for (int i = 0; i < N; ++i) {
    T stored;
    round_to(stored, values.of[i]);
    values.of[i] = widened(stored);
  }
  return values;
}

/// step(T{}) with T the storage type of `type`.
template <class Step>
DSTUNE_FUNCTION auto with_type(DType type, Step step) {
  switch (type) {
    case DType::bf16:
      return step(Bfloat16{});
    case DType::f16:
      return step(Float16{});
    default:
      return step(float{});
  }
}

/// The input of a kernel.
struct Input {
  const void* data;
  DType type;

  /// Elements index … index + N − 1. For N > 1 their address is a multiple of 16.
  template <int N>
  DSTUNE_FUNCTION Values<N> load(std::int64_t index) const {
    return with_type(type,
                     [&]<class T>(T) { return load_as<N>(static_cast<const T*>(data) + index); });
  }
  DSTUNE_FUNCTION float operator[](std::int64_t index) const { return load<1>(index).of[0]; }
};

/// The output of a kernel, which it may read, too.
struct Output {
  void* data;
  DType type;

  template <int N>
  DSTUNE_FUNCTION Values<N> load(std::int64_t index) const {
    return Input{data, type}.load<N>(index);
  }
  template <int N>
  DSTUNE_FUNCTION void store(std::int64_t index, const Values<N>& values) const {
    with_type(type, [&]<class T>(T) { store_as<N>(static_cast<T*>(data) + index, values); });
  }
  /// The values as they will be read again.
  template <int N>
  DSTUNE_FUNCTION Values<N> rounded(const Values<N>& values) const {
    return with_type(type, [&]<class T>(T) { return rounded_to<T>(values); });
  }
  DSTUNE_FUNCTION float operator[](std::int64_t index) const { return load<1>(index).of[0]; }
  DSTUNE_FUNCTION void set(std::int64_t index, float value) const {
    store(index, Values<1>{{value}});
  }
};

/// Tells whether packs of tensors that begin there can be moved at once; null: there is no tensor.
template <class... Addresses>
bool are_packed(Addresses... addresses) {
  return (... && (reinterpret_cast<std::uintptr_t>(addresses) % pack_alignment == 0));
}

/// Likewise of their rows, which begin at multiples of `stride` and have `width` elements.
template <class... Addresses>
bool are_rows_packed(std::int64_t width, std::int64_t stride, Addresses... addresses) {
  return width % pack == 0 && stride % pack == 0 && are_packed(addresses...);
}

/// call(how many elements a thread moves at once), a constant.
template <class Call>
void with_packs(bool packed, Call call) {
  with_either<pack, 1>(packed, call);
}

inline std::int64_t size_of(DType type) {
  return type == DType::f32 ? 4 : 2;
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
