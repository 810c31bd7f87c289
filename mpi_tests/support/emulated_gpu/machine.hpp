#pragma once
/// The GPUs that are pretended to be there, and who holds what of their memory. The environment
/// says: DSTUNE_EMULATED_GPUS, how many (default 1); DSTUNE_EMULATED_GPU_BYTES, the memory of each
/// (default 16 GiB, of which only what is touched is real); DSTUNE_EMULATED_FOLDER, where processes
/// that see the same GPUs meet (default: none, and this process is alone); DSTUNE_EMULATED_LOSE,
/// "1:500": a process's context on GPU 1 is lost with the 500th thing that it does there.

#include <cstddef>
#include <filesystem>
#include <string>

namespace dstune::emulated {

struct Machine {
  int gpus = 1;
  std::size_t bytes = std::size_t{16} << 30;
  std::filesystem::path folder;
  int lost_gpu = -1;
  int lost_with = 0;
};
const Machine& machine();

/// Ends in the GPU's number: "GPU-00000000-0000-0000-0000-000000000001".
std::string uuid_of(int gpu);
/// -1: of none.
int gpu_of(const std::string& uuid);

/// Of the memory that `gpu` has. What a process held is free again when it has ended. By any
/// thread.
std::size_t free_bytes(int gpu);
/// False where it is not there.
bool take_bytes(int gpu, std::size_t bytes);
void give_back_bytes(int gpu, std::size_t bytes);

}  // namespace dstune::emulated
