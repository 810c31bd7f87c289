#pragma once
/// The table of the CUDA kernels. All functions: Local.
///
/// Streams: a call of a function of cuda_table() enqueues its kernels on the calling thread's
/// current stream and returns. A caller that needs the results waits for an event or the stream. So
/// one executor serves every table: it names the stream before each operation (a no-op for a
/// processor), and calls the same functions with the same arguments.
///
/// Memory: every pointer is one that the GPU can follow (device memory, or pinned host memory) and
/// stays valid until the kernels are done. That holds for the few that the CPU's callers keep on
/// the host, too: tokens, targets and rotary frequencies. The sums of sum_of_squares() and
/// sum_f32() stay on the device until someone copies them. Values that are passed (an optimizer's
/// step, a loss scale) are those of the moment of the call.
///
/// Workspaces begin at multiples of 4 bytes. If the addresses of all tensors of an operation, and
/// of their rows, are multiples of 16 bytes, memory is read and written in wider pieces. The
/// results are the same except sums over a row.
///
/// Libraries: cuBLASLt does matrix products and cuDNN attention in 16 bits. They are looked for
/// when the program runs. The first use of a shape asks the library. It runs the candidates for a
/// product, or up to three plans of attention, several times and waits for them. It keeps the
/// fastest for the process (adopt_cuda_choices()); a plan takes some tenths of a second to make. So
/// warm-up steps run a plan's operations once before they are timed or recorded as a graph. Later
/// uses neither wait nor allocate on the device. Attention's backward by cuDNN keeps data of the
/// heads that it does at a time in its workspace, 256 MiB at most or one key head's. An fp32 is
/// fp32, not TF32. Sizes of workspaces are of the shape alone, the same on every GPU and rank.
///
/// DSTUNE_CUDA_ALGORITHMS in the environment says which algorithms may serve. `fastest`, the
/// default, takes any. As in PyTorch, attention's backward may then add up the gradient of the
/// queries in another order in each run. `reproducible` takes the fastest that gives the same bits
/// in every run of the process. `first` takes the one of those that the library names first,
/// without timing, so that processes agree in every bit.
///
/// Errors: CudaOutOfMemory if a call lacks memory of the GPU. A std::runtime_error has CUDA's words
/// if a launch is refused otherwise, the library's name if that is absent, and the shape if the
/// library refuses that. A failure on the device shows at the next call or wait.
/// std::invalid_argument: a head of attention in fp32 above 256 elements, or another word in
/// DSTUNE_CUDA_ALGORITHMS.

#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "dstune/kernels/kernels.hpp"

namespace dstune::kernels {

/// The GPU lacks memory for what a call takes of it beside its operands: code that is loaded, what
/// libraries keep. Nothing of the call was done, and it may be tried again.
class CudaOutOfMemory : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The version of the toolkit this was built with, "13.0"; empty: without CUDA.
std::string cuda_toolkit();

/// GPUs that answer; 0 without CUDA, a driver, or a GPU.
int num_cuda_devices();

/// Null where no GPU answers.
const Table* cuda_table();

/// "cuBLASLt 13.1.0", or "none: " and why it could not be loaded. Empty without CUDA.
struct CudaLibraries {
  std::string matmul, attention;
};
CudaLibraries cuda_libraries();

/// Folders in which libraries are looked for: behind the dynamic linker, before the toolkit's.
/// Before their first use, which is cuda_table() at the earliest.
void set_cuda_library_folders(std::vector<std::string> folders);

/// Choices of a library's candidates by their time: by library, GPU and operation, in words,
/// the place in the library's order: "3 of 24".
using CudaChoices = std::map<std::string, std::string>;

/// Choices that were timed since the last call, without those adopted since.
CudaChoices take_new_cuda_choices();

/// Nothing that is named here is timed from now on, and what was chosen otherwise is chosen anew at
/// its next use. A choice that does not fit is none. Other versions and GPUs have other names, and
/// an operation for which a library offers another number of candidates is timed. While nothing is
/// recorded as a graph.
void adopt_cuda_choices(const CudaChoices& choices);

/// Loads the code of all kernels of our own to the calling thread's GPU; CUDA else does that at
/// each one's first launch. No launch takes memory for it then, or waits until the GPU is done with
/// earlier work. Gives how many they are. Throws as the table's functions.
int load_cuda_kernels();

/// The cudaStream_t of the calling thread's calls from now on; null, at first: CUDA's default
/// stream.
void set_cuda_stream(void* stream);

}  // namespace dstune::kernels
