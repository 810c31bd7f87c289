#pragma once
/// Pictures of a memory plan: stacked categories over the operations of a step. Local.

#include <cstddef>
#include <string>

#include "dstune/core/memory_timeline.hpp"

namespace dstune {

/// Bars of letters, one line for each stretch of operations at its fullest. `width`: characters of
/// a line, 0 for 100; `indent`: blanks before each.
std::string memory_text(const MemoryTimeline& timeline, std::size_t width, std::size_t indent = 0);

/// A standalone SVG in the colours of the reader's scheme, light or dark. `name`: the experiment's.
std::string memory_svg(const MemoryTimeline& timeline, const std::string& name);

}  // namespace dstune
