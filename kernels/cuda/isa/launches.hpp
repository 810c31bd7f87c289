#pragma once
/// The shapes of most kernels: over elements, over rows, and sums over a warp or a block.

#include <cstdint>

#include "isa/tensor.hpp"

namespace dstune::kernels::DSTUNE_ISA {
namespace {

using cuda::warp_size;
constexpr int max_warps = cuda::max_threads / warp_size;

DSTUNE_FUNCTION std::int64_t divide_up(std::int64_t value, std::int64_t divisor) {
  return (value + divisor - 1) / divisor;
}

inline std::int64_t smaller_of(std::int64_t a, std::int64_t b) {
  return a < b ? a : b;
}

/// step(body), where the compiler knows the types of the body's tensors if it has Body::type(), and
/// unless it is_mixed: Body::assume(type) sets those of all of them.
template <class Body, class Step>
DSTUNE_DEVICE void with_known_types(const Body& body, Step step) {
  if constexpr (requires { body.is_mixed; }) {
    if (body.is_mixed) return step(body);
  }
  if constexpr (requires { body.type(); }) {
    Body known = body;
    switch (body.type()) {
      case DType::bf16:
        known.assume(DType::bf16);
        return step(known);
      case DType::f16:
        known.assume(DType::f16);
        return step(known);
      default:
        known.assume(DType::f32);
        return step(known);
    }
  } else {
    step(body);
  }
}

/// Body::at<N>(index) does elements index … index + N − 1. Threads stride over the whole grid.
template <int N, class Body>
struct EachElement {
  static constexpr int min_blocks = cuda::min_blocks_of<Body>();
  Body body;
  std::int64_t count;

  DSTUNE_DEVICE void operator()(const Block& block) const {
    with_known_types(body, [&](const Body& known) { for_each(block, known); });
  }

 private:
  DSTUNE_DEVICE void for_each(const Block& block, const Body& known) const {
    const std::int64_t first = block.index() * block.threads() + block.thread();
    const std::int64_t stride = block.blocks() * block.threads();
    const std::int64_t packs = count / N;
    for (std::int64_t i = first; i < packs; i += stride) known.template at<N>(i * N);
    if constexpr (N > 1) {
      for (std::int64_t i = packs * N + first; i < count; i += stride) known.template at<1>(i);
    }
  }
};

/// For every element, in packs where that is allowed.
template <class Body>
void for_elements(std::int64_t count, const Body& body, bool packed) {
  if (count <= 0) return;
  // This is as many as any GPU runs at once, and some more.
  constexpr std::int64_t max_blocks = 8192;
  with_packs(packed, [&](auto n) {
    const std::int64_t blocks = divide_up(divide_up(count, n), cuda::max_threads);
    launch({.blocks = smaller_of(blocks, max_blocks)}, EachElement<n, Body>{body, count});
  });
}

/// The sum over the lanes of a warp, in every lane. Every lane must come.
template <class T>
DSTUNE_DEVICE T warp_sum(const Block& block, T value) {
  for (int mask = warp_size / 2; mask > 0; mask /= 2) value += block.shuffle_xor(value, mask);
  return value;
}
/// NaN loses.
DSTUNE_DEVICE inline float warp_largest(const Block& block, float value) {
  for (int mask = warp_size / 2; mask > 0; mask /= 2)
    value = larger(block.shuffle_xor(value, mask), value);
  return value;
}

/// The bytes that the two below need of a launch's shared memory, from its first byte on.
constexpr std::size_t reduction_bytes = max_warps * sizeof(double);

/// The sum over a block, the same bits in every thread. Every thread must come.
template <class T>
DSTUNE_DEVICE T block_sum(const Block& block, T value) {
  const Shared<T> sums = block.template shared<T>();
  value = warp_sum(block, value);
  if (block.thread() % warp_size == 0) sums[block.thread() / warp_size] = value;
  block.sync();
  T total = sums[0];
  for (int warp = 1; warp < block.threads() / warp_size; ++warp) total += sums[warp];
  block.sync();
  return total;
}
/// Likewise of several, each with the bits of block_sum().
template <int K>
DSTUNE_DEVICE Values<K> block_sums(const Block& block, Values<K> values) {
  static_assert(sizeof(float) * K * max_warps <= reduction_bytes);
  const Shared<float> sums = block.shared<float>();
  for (int k = 0; k < K; ++k) {
    values.of[k] = warp_sum(block, values.of[k]);
    if (block.thread() % warp_size == 0)
      sums[k * max_warps + block.thread() / warp_size] = values.of[k];
  }
  block.sync();
  for (int k = 0; k < K; ++k) {
    values.of[k] = sums[k * max_warps];
    for (int warp = 1; warp < block.threads() / warp_size; ++warp)
      values.of[k] += sums[k * max_warps + warp];
  }
  block.sync();
  return values;
}
DSTUNE_DEVICE inline float block_largest(const Block& block, float value) {
  const Shared<float> largest = block.template shared<float>();
  value = warp_largest(block, value);
  if (block.thread() % warp_size == 0) largest[block.thread() / warp_size] = value;
  block.sync();
  float all = largest[0];
  for (int warp = 1; warp < block.threads() / warp_size; ++warp) all = larger(largest[warp], all);
  block.sync();
  return all;
}

/// step(i) for the packs of N elements of a row that are this thread's.
template <int N, class Step>
DSTUNE_DEVICE void for_row(const Block& block, std::int64_t width, Step step) {
  for (std::int64_t i = std::int64_t{N} * block.thread(); i < width;
       i += std::int64_t{N} * block.threads())
    step(i);
}

/// Body::row<N>(block, row), all threads of a block for one row.
template <int N, class Body>
struct EachRow {
  static constexpr int min_blocks = cuda::min_blocks_of<Body>();
  Body body;
  DSTUNE_DEVICE void operator()(const Block& block) const {
    with_known_types(body, [&](const Body& known) { known.template row<N>(block, block.index()); });
  }
};

/// For every row of `width` elements, in packs where that is allowed. The launch has
/// reduction_bytes of shared memory.
template <class Body>
void for_rows(std::int64_t rows, std::int64_t width, const Body& body, bool packed) {
  if (rows <= 0 || width <= 0) return;
  const std::int64_t items = packed ? width / pack : width;
  const std::int64_t threads =
      smaller_of(divide_up(items, warp_size) * warp_size, cuda::max_threads);
  const cuda::Grid grid{
      .blocks = rows, .threads = static_cast<int>(threads), .shared_bytes = reduction_bytes};
  with_packs(packed, [&](auto n) { launch(grid, EachRow<n, Body>{body}); });
}

}  // namespace
}  // namespace dstune::kernels::DSTUNE_ISA
