#pragma once

#include "dstune/base/wait.hpp"
#include "dstune/kernels/kernels.hpp"
#include "runtime.hpp"

namespace dstune::cuda {

/// Has the table multiply and attend once, a little, and waits for the GPU: what libraries take of
/// its memory for handles and their first kernels is taken then. Throws DeviceError, OutOfMemory,
/// CollectiveError (the waiter's: the runtime is given up then), and what the table's functions
/// throw.
void use_libraries(Runtime& runtime, const kernels::Table& table, const Waiter& waiter);

}  // namespace dstune::cuda
