#pragma once
/// What one rank holds at each instant of its plan, by category: what a picture of it is drawn
/// from.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace dstune {

struct MemoryTimeline {
  /// Bytes of every category at one instant.
  using Instant = std::vector<std::int64_t>;
  struct Memory {
    std::string name;               ///< "device", "host"
    std::vector<Instant> instants;  ///< as many in each memory
  };
  /// From this instant on, up to the next part.
  struct Part {
    std::string name;   ///< "micro-step 1", "micro-steps 2 to 7", "update"
    std::string phase;  ///< "forward", "backward"; empty where the name says it
    std::size_t first_instant = 0;
  };

  std::vector<std::string> categories;
  std::vector<Memory> memories;  ///< those that hold anything
  std::vector<Part> parts;       ///< in order, the first from instant 0 on
};

}  // namespace dstune
