#pragma once
/// op::Reshard as copies.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "dstune/plan/step_plan.hpp"

namespace dstune::train {

/// A tensor by its first byte and the size of an element.
struct ShardedBytes {
  std::byte* first;
  std::int64_t element_bytes;
  [[nodiscard]] std::byte* at(std::int64_t element) const {
    return first + element * element_bytes;
  }
};

/// So many elements from one tensor to the other, converted to its type.
using CopyElements = std::function<void(std::byte* to, const std::byte* from, std::int64_t count)>;
using ZeroBytes = std::function<void(std::byte* first, std::int64_t bytes)>;

void reshard(const op::Reshard& operation, std::span<const op::Reshard::Piece> pieces,
             ShardedBytes slab, ShardedBytes shards, const CopyElements& copy,
             const ZeroBytes& zero);

}  // namespace dstune::train
