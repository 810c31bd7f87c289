#pragma once
/// The rows of DeepSpeed's keys with what their values do.

#include <vector>

#include "dstune/core/settings.hpp"

namespace dstune {

/// All rows of all releases, in their order.
[[nodiscard]] std::vector<Knob> all_knobs();

}  // namespace dstune
