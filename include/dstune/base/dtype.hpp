#pragma once
/// Element types of planned tensors.

#include <cstddef>
#include <cstdint>

namespace dstune {

enum class DType : std::uint8_t { f32, bf16, i32 };

[[nodiscard]] constexpr std::int64_t size_bytes(DType type) {
  return type == DType::bf16 ? 2 : 4;
}

}  // namespace dstune
