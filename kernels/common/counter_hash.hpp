#pragma once
/// The formulas of counter_hash() and of initial weights, for loops that vectorise them and for
/// GPUs.

#include <cstdint>

#include "common/function.hpp"

namespace dstune::kernels {
namespace {

DSTUNE_FUNCTION std::uint64_t hash_offset(std::uint64_t seed, std::uint64_t stream) {
  return seed * 0xD1342543DE82EF95U + stream * 0xDB4F0B9175AE2165U;
}

DSTUNE_FUNCTION std::uint64_t hash_at(std::uint64_t offset, std::uint64_t index) {
  std::uint64_t z = offset + (index + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

/// Standard deviation of a sum of four uniform 16-bit numbers: sqrt((2^32 − 1)/3).
constexpr double deviation_of_sum = 37837.22723720648;

/// The sum of a hash's four 16-bit parts, less its mean.
DSTUNE_FUNCTION std::int32_t centred_sum(std::uint64_t hash) {
  constexpr std::int32_t mean_of_sum = 131070;
  const std::uint64_t sum =
      (hash & 0xffff) + ((hash >> 16) & 0xffff) + ((hash >> 32) & 0xffff) + (hash >> 48);
  return static_cast<std::int32_t>(sum) - mean_of_sum;
}

}  // namespace
}  // namespace dstune::kernels
