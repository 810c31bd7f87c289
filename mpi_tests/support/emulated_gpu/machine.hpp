#pragma once
/// The GPUs that are pretended to be there, and who holds what of their memory. The environment
/// says: DSTUNE_EMULATED_GPUS, how many (default 1); DSTUNE_EMULATED_GPU_BYTES, the memory of each
/// (default 16 GiB, of which only what is touched is real); DSTUNE_EMULATED_FOLDER, where processes
/// that see the same GPUs meet (default: none, and this process is alone);
/// DSTUNE_EMULATED_DRIVER, the newest CUDA that the driver supports, 12040 for 12.4 (default
/// 99000); DSTUNE_EMULATED_LOSE, "1:500": a process's context on GPU 1 is lost with the 500th thing
/// that it does there; DSTUNE_EMULATED_HANG, "1:500": that never ends, and nothing that a process
/// asks GPU 1 for afterwards does, so calls that wait for it do not come back; neither does the end
/// of the process where it destroys what is static. "1:500:calls": from then on no call at all
/// comes back.

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>

namespace dstune::emulated {

/// What befalls a GPU, with which of the things that a process does there.
struct Trouble {
  int gpu = -1;  ///< -1: none
  int with = 0;

  /// Counts the things that are done.
  [[nodiscard]] bool comes_to(int device, int& done) const {
    return device == gpu && ++done == with;
  }
};

struct Machine {
  int gpus = 1;
  std::size_t bytes = std::size_t{16} << 30;
  int cuda_version = 0;
  std::filesystem::path folder;
  Trouble loss, hang;
  bool calls_hang = false;
};
const Machine& machine();

/// Ends in the GPU's number: "GPU-00000000-0000-0000-0000-000000000001".
std::string uuid_of(int gpu);
/// -1: of none.
int gpu_of(const std::string& uuid);

/// Of one that has ended, but whose parent has not asked how, false.
bool lives(int process);

/// The processes that hold memory of the GPU, and how much. By any thread.
std::map<int, std::size_t> holders(int gpu);

/// Of the memory that `gpu` has. What a process held is free again when it has ended. By any
/// thread.
std::size_t free_bytes(int gpu);
/// False where it is not there.
bool take_bytes(int gpu, std::size_t bytes);
void give_back_bytes(int gpu, std::size_t bytes);

}  // namespace dstune::emulated
