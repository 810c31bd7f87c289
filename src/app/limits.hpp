#pragma once
/// Limits of the system that are too low to start with. Local.

#include <string>

namespace dstune {

/// Empty, or which limit is too low and how it is raised: without its stack or its libraries a
/// process ends by a signal, in the middle of anything.
[[nodiscard]] std::string low_limit();

/// "; the address space is limited to 400 MiB: …", for a message about memory; empty: it is not.
[[nodiscard]] std::string memory_limit_hint();

}  // namespace dstune
