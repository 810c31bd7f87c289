#pragma once
/// Loops over threads and over storage types. See vector.hpp for the rules of these files.

#include <cstdint>

#include <omp.h>

#include "backend_parts.hpp"
#include "dstune/kernels/kernels.hpp"
#include "isa/vector.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

/// body(T{}) with T the storage type of `type`.
template <class Body>
inline void with_type(DType type, Body body) {
  switch (type) {
    case DType::f32:
      return body(float{});
    case DType::bf16:
      return body(Bfloat16{});
    case DType::f16:
      return body(Float16{});
  }
}

/// body(begin, end) over contiguous pieces of [0, count), one a thread. For work in which no
/// element depends on another, so that the number of pieces shows nowhere.
template <class Body>
inline void for_pieces(std::int64_t count, Body body) {
  // Pointers to no elements may be null, and no body need look.
  if (count <= 0) return;
  const int threads = threads_for(count);
  if (threads == 1) {
    body(std::int64_t{0}, count);
    return;
  }
#pragma omp parallel num_threads(threads)
  {
    // Whole cache lines of any type, lest two threads write the same one.
    constexpr std::int64_t grain = 64;
    const std::int64_t grains = (count + grain - 1) / grain;
    const std::int64_t team = omp_get_num_threads();
    const std::int64_t self = omp_get_thread_num();
    const std::int64_t begin = grains * self / team * grain;
    const std::int64_t end = grains * (self + 1) / team * grain;
    body(begin, end < count ? end : count);
  }
}

/// to[i] = function(from[i]…) for `count` elements, a vector of them at a time.
template <class T, class Function, class... From>
inline void for_elements(std::int64_t count, T* to, Function function, const From*... from) {
  for_pieces(count, [&](std::int64_t begin, std::int64_t end) {
    for_vectors(begin, end, [&](std::int64_t i, auto extent) {
      store(to + i, function(load(from + i, extent)...), extent);
    });
  });
}

/// body(item) for items [0, items), each of about `elements` elements of work.
template <class Body>
inline void for_items(std::int64_t items, std::int64_t elements, Body body) {
#pragma omp parallel for schedule(static) num_threads(threads_for(items* elements))
  for (std::int64_t item = 0; item < items; ++item) body(item);
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
