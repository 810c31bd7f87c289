#pragma once
/// The formula of counter_hash(), for loops that vectorise it.

#include <cstdint>

namespace dstune::kernels {
namespace {

inline std::uint64_t hash_offset(std::uint64_t seed, std::uint64_t stream) {
  return seed * 0xD1342543DE82EF95U + stream * 0xDB4F0B9175AE2165U;
}

inline std::uint64_t hash_at(std::uint64_t offset, std::uint64_t index) {
  std::uint64_t z = offset + (index + 1) * 0x9E3779B97F4A7C15U;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31);
}

}  // namespace
}  // namespace dstune::kernels
