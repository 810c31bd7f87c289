#pragma once
// The arithmetic of the collectives: one place, so that every implementation gives the same bits.

#include <cstddef>
#include <cstdint>
#include <span>

#include "dstune/base/operands.hpp"

namespace dstune {

/// Returns the bytes that so many elements take.
[[nodiscard]] constexpr std::size_t as_bytes(std::int64_t count, DType type) {
  return static_cast<std::size_t>(count * size_bytes(type));
}

/// Written data stays in the caches or goes round them. Data larger than the caches would only push
/// out the staging memory.
enum class Write { cached, streamed };
[[nodiscard]] Write write_of(std::size_t total_bytes);

void copy_bytes(void* to, const void* from, std::size_t bytes, Write write);

/// out[i] = (parts[0][i] + parts[1][i] + …) / divisor: summed in that order in fp32, divided,
/// rounded once to nearest even. At least one part; out may be one of them. f32, bf16 or f16.
void sum_and_divide(void* out, std::span<const void* const> parts, int divisor, std::int64_t count,
                    DType type, Write write);

}  // namespace dstune
