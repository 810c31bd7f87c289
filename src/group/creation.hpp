#pragma once

#include <memory>
#include <span>

#include "dstune/base/wait.hpp"
#include "dstune/comm/communicator.hpp"

namespace dstune {

/// create_group() on a thread of its own, since it can not be polled and blocks for ever where a
/// member dies. After a CollectiveError the thread is left to itself and `parent` must not be used
/// for another creation. Members only. Throws CollectiveError, MpiError.
Communicator create_group_until(std::shared_ptr<Communicator> parent, std::span<const int> ranks,
                                int tag, const Waiter& waiter);

}  // namespace dstune
