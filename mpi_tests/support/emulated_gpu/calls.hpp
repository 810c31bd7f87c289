#pragma once
/// What the runtime's calls share: the calling thread's device and last error, and what a capture
/// forbids.

#include <mutex>

#include <driver_types.h>

#include "engine.hpp"

namespace dstune::emulated {

/// The calling thread's.
int& current_device();
/// Kept for cudaGetLastError() where it is one. CUDA's guide says that cudaErrorNotReady is not
/// kept, programs say that it is: here it is.
cudaError_t said(cudaError_t error);

/// A thread's first call that needs it makes the device's context, which takes memory. An error
/// where it has none, or has lost it. With the lock.
cudaError_t context_error();

/// The stream, or the default one; null: there is no such stream, or it is another device's. With
/// the lock.
CUstream_st* find(cudaStream_t stream);
/// Adds it to the stream, or to what it is captured into. With the lock.
cudaError_t ask(CUstream_st& stream, Task task);
/// Calls that wait or allocate end the capture that the thread has begun, if there is one. With the
/// lock.
cudaError_t forbid_in_capture();

/// A capture that this thread began or is in; for forbid_in_capture(). With the lock.
void begin_of_thread(const std::shared_ptr<Capture>& capture);
void end_of_thread(const Capture& capture);

/// The nodes that what is asked of the stream next comes after, with this one added. With the lock.
void capture_node(CUstream_st& stream, CUgraphNode_st node);

/// For libraries that work in streams: the same as ask(), without the lock, by any thread.
cudaError_t ask_stream(cudaStream_t stream, Task task);
/// Likewise, behind what was asked for in this order before, in whichever streams; `order` is the
/// event of it.
cudaError_t ask_stream_in_order(cudaStream_t stream, CUevent_st& order, Task task);
/// Whether all of that is done. Without the lock.
bool is_reached(const CUevent_st& order);
/// Whether a context is lost. Without the lock.
bool is_fault();
/// Something that is done at once when its turn comes.
cudaError_t ask_stream_to(cudaStream_t stream, std::function<void()> work);

}  // namespace dstune::emulated
