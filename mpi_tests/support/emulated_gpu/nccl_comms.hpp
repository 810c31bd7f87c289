#pragma once
/// The communicators of the emulated NCCL that are there, and what may be asked of them.

#include <functional>
#include <mutex>
#include <string>

#include <nccl.h>

#include "nccl_messages.hpp"

namespace dstune::emulated {

/// What went wrong last, by this thread's calls.
std::string& last_nccl_error();
/// A call that is not allowed: says so, and is its result.
ncclResult_t refuse(const std::string& why);

/// Taken by every call. All that follow: with it, but forget().
std::unique_lock<std::mutex> lock_nccl();
/// Null where there is none.
Comm find(ncclComm_t comm);
/// Empty where a call may be made.
std::string violation(const Comm& comm, const char* call);
/// Of these ranks, this one among them; the others join it.
Comm make(std::string id, int rank, int size, int device);
/// One that never came to be, of a split that was aborted.
ncclComm_t make_failed(const ncclComm& parent);
/// Has another thread do it, as NCCL does for non-blocking communicators; in progress until then.
ncclResult_t begin(const Comm& comm, std::function<cudaError_t()> enqueue);
/// What has happened since.
ncclResult_t look(ncclComm& comm);

/// Destroys or aborts it: when graphs with its collectives are gone, and all ranks that it was
/// connected with do the same. (NCCL's source: init.cc, commDestroySync and commFree; proxy.cc,
/// ncclProxyService, which some versions leave at once where it aborts.) The calling thread's
/// device is chosen again behind it.
ncclResult_t forget(ncclComm_t comm, bool aborts);

}  // namespace dstune::emulated
