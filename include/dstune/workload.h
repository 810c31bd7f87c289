#ifndef DSTUNE_WORKLOAD_H
#define DSTUNE_WORKLOAD_H
/** A workload of your own: a shared library that dstune-mpi measures in the place of its training
 *  step, for {"type": "plugin", "library": "./libmine.so", ...} in `dstune.workload`.
 *
 *  The library exports dstune_workload_stamp, by DSTUNE_WORKLOAD_DEFINE_STAMP, and the four
 *  functions at the end of this header. Before anything of it runs, its file is checked: a shared
 *  library for this machine, all five symbols, this version. docs/plugin.md walks through an
 *  example. This header is C99 and C++, and needs nothing else of dstune-mpi.
 *
 *  Order of calls. For each experiment that a rank is in: build, then report; if both succeeded,
 *  step 0, report, step 1, report, ...; at last destroy. Every call of one experiment is made on
 *  one thread, on every rank of its group; experiments follow each other in one process and never
 *  overlap there. A library's global variables outlive its experiments: the library is never
 *  unloaded.
 *
 *  Failing. A call answers DSTUNE_OK, or DSTUNE_OUT_OF_MEMORY or DSTUNE_FAILED, best by
 *  `return group->fail(group, DSTUNE_FAILED, "what went wrong")`. One rank may fail alone, also
 *  between collectives. The others are told so at their next one (DSTUNE_ENDED), or when they
 *  return. The whole group records the status and the message of the lowest rank that failed. If a
 *  function of the group answers anything but DSTUNE_OK, give up and return that.
 *
 *  Ownership. Everything that dstune-mpi passes in stays its own. The configuration and its
 *  texts live until build returns: copy what is needed later. The group lives until destroy
 *  returns. Memory that build allocates is the library's; destroy frees it. No buffer given to a
 *  function of the group is used after that function has returned.
 *
 *  Not allowed: to throw, longjmp or leave the process; to fork or start programs. Call the
 *  functions of the group only from the thread that was called. Do not change the signal handlers
 *  or MPI's error handlers. A crash costs the rank, as any crash of a rank does.
 *
 *  Versions. A library runs with a dstune-mpi whose DSTUNE_WORKLOAD_VERSION is the one it was
 *  built with. Within a version, structures only grow at their end, and `struct_bytes` says how
 *  large the caller's is: a field is there if it lies within. Fields of results that a library
 *  does not know keep the value they had, which means "not said".
 */

#include <stddef.h>
#include <stdint.h>

#define DSTUNE_WORKLOAD_MAGIC 0x4e545344u /* "DSTN" in the file of a little-endian machine */
#define DSTUNE_WORKLOAD_VERSION 1u

#if defined(__GNUC__)
#define DSTUNE_WORKLOAD_EXPORT __attribute__((visibility("default")))
#else
#define DSTUNE_WORKLOAD_EXPORT
#endif

#ifdef __cplusplus
extern "C" {
#endif

/** The answer of a call. */
typedef int32_t dstune_status;
enum {
  DSTUNE_OK = 0,
  /** The configuration does not fit: a result, not an error. */
  DSTUNE_OUT_OF_MEMORY = 1,
  DSTUNE_FAILED = 2,
  /** From functions of the group only: the experiment is over, because a peer failed, the
   *  controller gave it up or its time is over. To be returned at once. */
  DSTUNE_ENDED = 3
};

/** Types of elements that are averaged. */
typedef int32_t dstune_element;
enum { DSTUNE_F32 = 0, DSTUNE_BF16 = 1 };

/** The ranks that run one experiment together, and their collectives. Buffers are in host memory.
 *  Every collective is called by all ranks of the group in the same order with the same numbers;
 *  ranks that disagree fail with a message that says how. Before the data each collective exchanges
 *  a few numbers (microseconds inside a node): few large calls are better than many small ones. */
typedef struct dstune_group dstune_group;
struct dstune_group {
  size_t struct_bytes;
  int32_t group_rank; /**< from 0 */
  int32_t group_size;
  /** The group's MPI communicator as MPI_Comm_f2c() takes it; -1 where it has none, as inside one
   *  node and alone. A wait inside MPI hears of no deadline: what hangs there costs the rank. All
   *  of the library's operations on it must have completed when a call of the library returns. */
  int32_t mpi_communicator;
  void* context; /**< dstune-mpi's own */

  /** Returns once every rank has called it. Collective over the group. */
  dstune_status (*barrier)(const dstune_group* group);
  /** data[bytes] of `root` on every rank. For small data: it costs as much as an all_gather.
   *  Collective over the group. */
  dstune_status (*broadcast)(const dstune_group* group, void* data, uint64_t bytes, int32_t root);
  /** data[count] becomes the mean over the ranks: summed in fp32 in the order of ranks, rounded
   *  once, the same bits on every rank and in every run. Collective over the group. */
  dstune_status (*all_reduce_mean)(const dstune_group* group, void* data, uint64_t count,
                                   dstune_element element);
  /** out[count_per_rank] becomes the mean of every rank's part `group_rank` of
   *  in[count_per_rank * group_size]; `out` may be that part of `in`. Collective over the group. */
  dstune_status (*reduce_scatter_mean)(const dstune_group* group, void* out, const void* in,
                                       uint64_t count_per_rank, dstune_element element);
  /** out[bytes_per_rank * group_size] becomes every rank's in[bytes_per_rank], rank after rank;
   *  `in` may be the own part of `out`. Collective over the group. */
  dstune_status (*all_gather)(const dstune_group* group, void* out, const void* in,
                              uint64_t bytes_per_rank);
  /** DSTUNE_ENDED once the experiment is over. To be asked in waits and loops of the library's own
   *  that may take seconds: a call that never returns costs the rank. Local. */
  dstune_status (*poll)(const dstune_group* group);
  /** Keeps the message (copied, cut at 768 bytes) and returns `status`. Local. */
  dstune_status (*fail)(const dstune_group* group, dstune_status status, const char* message);
};

/** One experiment. Texts are UTF-8 and end in 0. */
typedef struct dstune_configuration {
  size_t struct_bytes;
  const char* experiment; /**< its name */
  const char* ds_config;  /**< the DeepSpeed config, a JSON object */
  const char* options;    /**< JSON object: the members of `dstune.workload` but type and library */
  const char* precision;  /**< "fp32", "bf16", ... */
  const char* recompute;  /**< `dstune.activation_recompute`: "none", "selective", "block" */
  int32_t zero_stage;     /**< 0 to 3 */
  int32_t threads;        /**< that this rank may use */
  int64_t micro_batch;    /**< samples a rank and micro-step */
  int64_t accumulation_steps;
  int64_t global_batch; /**< samples an optimizer step: the two times the group's size */
  int64_t sequence_length;
  int64_t device_memory_bytes; /**< that this rank may use on its device, which may be the host */
} dstune_configuration;

/** One optimizer step as this rank saw it. */
typedef struct dstune_step {
  size_t struct_bytes;
  /** Mean over the global batch before the update; NaN (as it comes in): there is none. */
  double loss;
  /** Seconds of the step; 0 (as it comes in): what dstune-mpi's clock says of the call. */
  double step_s;
  double forward_s; /**< summed over the micro-steps; 0: not said */
  double backward_s;
  double update_s;
} dstune_step;

/** The memory and work of the experiment on this rank: the most so far. */
typedef struct dstune_usage {
  size_t struct_bytes;
  int64_t device_bytes; /**< more than device_memory_bytes is recorded as out of memory */
  int64_t host_bytes;   /**< besides */
  int64_t parameters;   /**< of the whole model; 0: not said */
  /** FLOPs of one optimizer step of the whole group; 0: 6 * parameters * tokens. */
  double flops_per_step;
} dstune_usage;

/** DSTUNE_WORKLOAD_MAGIC, DSTUNE_WORKLOAD_VERSION: read from the file before it is loaded. */
extern DSTUNE_WORKLOAD_EXPORT const uint32_t dstune_workload_stamp[2];

/** Once in one source of the library, at file scope. */
#define DSTUNE_WORKLOAD_DEFINE_STAMP \
  const uint32_t dstune_workload_stamp[2] = {DSTUNE_WORKLOAD_MAGIC, DSTUNE_WORKLOAD_VERSION};

/** Allocates and prepares everything for the configuration; *workload is what the other functions
 *  are given. On another answer than DSTUNE_OK nothing is left behind, and no other function is
 *  called. Collective over the group: may use its functions. */
DSTUNE_WORKLOAD_EXPORT dstune_status dstune_workload_build(
    const dstune_configuration* configuration, const dstune_group* group, void** workload);

/** Optimizer step number `number`, from 0: all micro-steps and the update, finished on the device
 *  when it returns. Collective over the group: may use its functions. */
DSTUNE_WORKLOAD_EXPORT dstune_status dstune_workload_step(void* workload, int64_t number,
                                                          dstune_step* step);

/** Quick, untimed, never in a collective. Local. */
DSTUNE_WORKLOAD_EXPORT dstune_status dstune_workload_report(void* workload, dstune_usage* usage);

/** Frees everything, after a failure too. Must use no function of the group: peers may be gone.
 *  Local. */
DSTUNE_WORKLOAD_EXPORT void dstune_workload_destroy(void* workload);

#ifdef __cplusplus
}
#endif

#endif
