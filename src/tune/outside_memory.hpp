#pragma once
/// What a rank's process holds beside the arenas of its experiments: code, MPI, the libraries that
/// compute, shared windows. Measured once, before the first experiment.

#include <cstdint>
#include <vector>

#include "dstune/comm/communicator.hpp"
#include "dstune/kernels/kernels.hpp"

namespace dstune {

/// Resident bytes of each rank's process, with the matrix products' library in use: it makes its
/// tables at the first one. Collective over the world.
std::vector<std::int64_t> resident_before_experiments(const Communicator& world,
                                                      const kernels::Table& table);

/// Pages of shared windows that a member of a group inside a node comes to touch: everybody's
/// staging memory.
std::int64_t staging_bytes(int group_size);

}  // namespace dstune
