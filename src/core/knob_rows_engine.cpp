#include <array>

#include "knob_rows.hpp"

namespace dstune::rows {

namespace {

void set_clipping(TrainingConfig& config, const KnobValue& value) {
  config.gradient_clipping = std::get<double>(value);
}

constexpr std::array table = {
    // Read by whoever knows the group: they depend on each other and on its size.
    integer("/train_batch_size", "null", 1, measured, "samples of an optimizer step, all ranks"),
    integer("/train_micro_batch_size_per_gpu", "null", 1, measured, "samples of a micro-step"),
    integer("/gradient_accumulation_steps", "null", 1, measured, "micro-steps of a step"),

    acting(not_null(number("/gradient_clipping", "1.0", 0, unbounded, measured,
                           "largest global norm of the gradient; 0: no clipping")),
           set_clipping),
    not_null(not_auto(in_any_case(text("/gradient_allreduce_op", "\"mean\"", "mean|sum", refused,
                                       "mean or sum over ranks")))),
    flag("/prescale_gradients", "false", inert,
         "divide before reducing: rounding only, sums are in fp32 here"),
    not_null(number("/gradient_predivide_factor", "1.0", -unbounded, unbounded, inert,
                    "divide by so much before reducing: rounding only")),
    integer("/allgather_size", "500000000", 0, inert,
            "allgather_bucket_size beside zero_optimization true"),
    not_auto(in_any_case(text("/communication_data_type", "null", "fp32|fp16|bf16", not_built,
                              "type of reductions"))),
    not_auto(in_any_case(text("/seq_parallel_communication_data_type", "\"fp32\"", "fp32|fp16|bf16",
                              inert, "type of reductions over sequence-parallel ranks"))),
    flag("/graph_harvesting", "false", not_built, "CUDA graphs of the update"),
    flag("/sparse_gradients", "false", refused, "sparse gradients of embeddings"),
    flag("/managed_gradient_accumulation", "true", refused,
         "DeepSpeed finds the accumulation boundary"),
    flag("/disable_allgather", "false", inert, "legacy"),
    flag("/zero_allow_untested_optimizer", "false", inert, "allow other optimizers with ZeRO"),
    flag("/zero_force_ds_cpu_optimizer", "true", inert, "insist on DeepSpeed's CPU optimizer"),

    section("/activation_checkpointing", not_built,
            "how activations are kept where the model recomputes"),
    flag("/activation_checkpointing/partition_activations", "false", not_built,
         "split kept activations over model-parallel ranks"),
    flag("/activation_checkpointing/cpu_checkpointing", "false", not_built,
         "keep activations in host memory"),
    flag("/activation_checkpointing/contiguous_memory_optimization", "false", not_built,
         "keep activations in one buffer"),
    integer("/activation_checkpointing/number_checkpoints", "null", 1, not_built,
            "kept activations"),
    flag("/activation_checkpointing/synchronize_checkpoint_boundary", "false", not_built,
         "wait for the device at each"),
    flag("/activation_checkpointing/profile", "false", inert, "logging"),

    optional(section("/aio", inert, "asynchronous disk access, for offload to NVMe")),
    integer("/aio/block_size", "1048576", 1, inert, "bytes of a request"),
    integer("/aio/queue_depth", "8", 1, inert, "requests in flight"),
    integer("/aio/intra_op_parallelism", "1", 1, inert, "threads"),
    flag("/aio/single_submit", "false", inert, "submit requests one by one"),
    flag("/aio/overlap_events", "true", inert, "submit and wait at once"),
    flag("/aio/use_gds", "false", inert, "GPUDirect Storage"),
};

}  // namespace

std::span<const Knob> engine() {
  return table;
}

}  // namespace dstune::rows
