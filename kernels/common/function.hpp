#pragma once
/// The words before functions that run on processors and on GPUs, before those that run where a
/// kernel runs, and before loops over a thread's own array. The array lies in registers only if
/// they are unrolled. nvcc knows the words behind them, other compilers need none.

#if defined(__CUDACC__)
#define DSTUNE_FUNCTION __host__ __device__ inline
#define DSTUNE_DEVICE __device__
#define DSTUNE_UNROLL _Pragma("unroll")
#else
#define DSTUNE_FUNCTION inline
#define DSTUNE_DEVICE
#define DSTUNE_UNROLL
#endif
