#pragma once
/// The table of the CUDA kernels. All functions: Local.
///
/// Streams: a call of a function of cuda_table() enqueues its kernels on the calling thread's
/// current stream and returns; whoever needs the results waits for an event or the stream. So one
/// executor serves every table: it names the stream before each operation (a no-op for a
/// processor), and calls the same functions with the same arguments.
///
/// Memory: every pointer is one that the GPU can follow (device memory, or pinned host memory) and
/// stays valid until the kernels are done; so do the few that the CPU's callers keep on the host:
/// tokens, targets, rotary frequencies, and the sum of sum_of_squares() and sum_f32(), which stay
/// on the device until someone copies them. What is passed by value (an optimizer's step, a loss
/// scale) is of the moment of the call.
///
/// Workspaces begin at multiples of 4 bytes. Where the addresses of all tensors of an operation,
/// and of their rows, are multiples of 16 bytes, memory is read and written in wider pieces; the
/// results are the same but for sums over a row.
///
/// Errors: std::runtime_error with CUDA's words where a launch is refused; what fails on the device
/// later shows at the next call or wait. std::invalid_argument: a head of attention above 256
/// elements.

#include <string>

#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels {

/// The version of the toolkit this was built with, "13.0"; empty: without CUDA.
std::string cuda_toolkit();

/// GPUs that answer; 0 without CUDA, a driver, or a GPU.
int num_cuda_devices();

/// Null where no GPU answers. matmul, matmul_workspace_bytes, quantize and dequantize are null:
/// they are not built yet.
const Table* cuda_table();

/// The cudaStream_t of the calling thread's calls from now on; null, at first: CUDA's default
/// stream.
void set_cuda_stream(void* stream);

}  // namespace dstune::kernels
