#pragma once
/// What stands before functions that run on processors and on GPUs, and before those that run where
/// a kernel runs. nvcc knows the words behind them, other compilers need none.

#if defined(__CUDACC__)
#define DSTUNE_FUNCTION __host__ __device__ inline
#define DSTUNE_DEVICE __device__
#else
#define DSTUNE_FUNCTION inline
#define DSTUNE_DEVICE
#endif
