#pragma once

#include "dstune/group/nccl_library.hpp"
#include "dstune/group/process_group.hpp"

namespace dstune::nccl {

/// An id that the first rank asks the library for. Throws CollectiveError on every rank where it
/// gets none. Collective over the group.
UniqueId agree_on_unique_id(ProcessGroup& host, Library& library);

}  // namespace dstune::nccl
