#pragma once
/// The copy between whole parameters and the order in which their shards travel.

#include <cstddef>
#include <cstdint>

#include "dstune/plan/step_plan.hpp"

namespace dstune::train {

/// `slab` and `shards` hold elements of this size; see op::Reshard.
void reshard(const op::Reshard& operation, std::byte* slab, std::byte* shards,
             std::int64_t element_bytes, int group_size);

}  // namespace dstune::train
