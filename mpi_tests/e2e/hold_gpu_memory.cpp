// hold_gpu_memory BYTES FILE: takes all of the first GPU's free memory but so many bytes, says so
// by making the file, and keeps it until it is ended.
#include <cstdio>
#include <cstdlib>
#include <vector>

#include <cuda_runtime_api.h>
#include <unistd.h>

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "use: %s BYTES FILE\n", argv[0]);
    return 2;
  }
  const std::size_t left_bytes = std::strtoull(argv[1], nullptr, 10);
  // Large pieces first: what is free need not lie in one.
  std::size_t free_bytes = 0, total_bytes = 0;
  cudaError_t error = cudaMemGetInfo(&free_bytes, &total_bytes);
  std::size_t piece_bytes = free_bytes;
  while (error == cudaSuccess && free_bytes > left_bytes && piece_bytes >= std::size_t{1} << 20) {
    if (piece_bytes > free_bytes - left_bytes) piece_bytes = free_bytes - left_bytes;
    void* memory = nullptr;
    if (cudaMalloc(&memory, piece_bytes) != cudaSuccess) piece_bytes /= 2;
    error = cudaMemGetInfo(&free_bytes, &total_bytes);
  }
  if (error != cudaSuccess) {
    std::fprintf(stderr, "%s\n", cudaGetErrorString(error));
    return 1;
  }
  std::FILE* const file = std::fopen(argv[2], "w");
  if (file == nullptr || std::fclose(file) != 0) {
    std::perror(argv[2]);
    return 1;
  }
  for (;;) pause();
}
