#pragma once
/// Element types of planned tensors.

#include <cstddef>
#include <cstdint>

namespace dstune {

/// bf16: bfloat16. f16: IEEE 754 half precision, binary16. i8: codes of quantised numbers.
enum class DType : std::uint8_t { f32, bf16, f16, i32, i8 };

[[nodiscard]] constexpr std::int64_t size_bytes(DType type) {
  if (type == DType::i8) return 1;
  return type == DType::bf16 || type == DType::f16 ? 2 : 4;
}

}  // namespace dstune
