#include <array>

#include "deepspeed/knob_rows.hpp"
#include "dstune/core/knob_value.hpp"

namespace dstune::rows {

namespace {

void set_clipping(TrainingConfig& config, const KnobValue& value) {
  config.gradient_clipping = std::get<double>(value);
}

void set_reduction(TrainingConfig& config, const KnobValue& value) {
  config.sums_gradients = lower_case(std::get<std::string>(value)) == "sum";
}

void set_communication_type(TrainingConfig& config, const KnobValue& value) {
  using enum CommunicationType;
  const std::string word = lower_case(std::get<std::string>(value));
  config.communication_data_type = word == "fp32"   ? fp32
                                   : word == "fp16" ? fp16
                                   : word == "bf16" ? bf16
                                                    : as_gradients;
}

void set_cpu_checkpointing(TrainingConfig& config, const KnobValue& value) {
  config.cpu_checkpointing = std::get<bool>(value);
}

void set_synchronize(TrainingConfig& config, const KnobValue& value) {
  config.synchronize_checkpoint_boundary = std::get<bool>(value);
}

constexpr std::array table = {
    // Read by whoever knows the group: they depend on each other and on its size.
    integer("/train_batch_size", "null", 1, measured, "samples of an optimizer step, all ranks"),
    integer("/train_micro_batch_size_per_gpu", "null", 1, measured, "samples of a micro-step"),
    integer("/gradient_accumulation_steps", "null", 1, measured, "micro-steps of a step"),

    acting(not_null(number("/gradient_clipping", "1.0", 0, unbounded, measured,
                           "largest global norm of the gradient; 0: no clipping")),
           set_clipping),
    at(stages_0_1_2,
       acting(not_null(not_auto(in_any_case(text("/gradient_allreduce_op", "\"mean\"", "mean|sum",
                                                 measured, "mean or sum over ranks")))),
              set_reduction)),
    flag("/prescale_gradients", "false", inert,
         "divide before reducing: rounding only, sums are in fp32 here"),
    not_null(number("/gradient_predivide_factor", "1.0", -unbounded, unbounded, inert,
                    "divide by so much before reducing: rounding only")),
    integer("/allgather_size", "500000000", 0, inert,
            "allgather_bucket_size beside zero_optimization true"),
    acting(not_auto(in_any_case(text("/communication_data_type", "null", "fp32|fp16|bf16", measured,
                                     "type in which gradients are reduced"))),
           set_communication_type),
    not_auto(in_any_case(text("/seq_parallel_communication_data_type", "\"fp32\"", "fp32|fp16|bf16",
                              inert, "type of reductions over sequence-parallel ranks"))),
    flag("/graph_harvesting", "false", not_built, "CUDA graphs of the update"),
    flag("/sparse_gradients", "false", refused, "sparse gradients of embeddings"),
    flag("/managed_gradient_accumulation", "true", refused,
         "DeepSpeed finds the accumulation boundary"),
    flag("/disable_allgather", "false", inert, "legacy"),
    flag("/zero_allow_untested_optimizer", "false", inert, "allow other optimizers with ZeRO"),
    flag("/zero_force_ds_cpu_optimizer", "true", inert, "insist on DeepSpeed's CPU optimizer"),

    section("/activation_checkpointing", measured,
            "for trainings that call deepspeed.checkpointing, with activation_recompute block"),
    flag("/activation_checkpointing/partition_activations", "false", inert,
         "split kept activations over model-parallel ranks: there is one"),
    acting(flag("/activation_checkpointing/cpu_checkpointing", "false", measured,
                "keep activations in host memory"),
           set_cpu_checkpointing),
    flag("/activation_checkpointing/contiguous_memory_optimization", "false", inert,
         "keep partitioned activations in one buffer; memory is planned here"),
    integer("/activation_checkpointing/number_checkpoints", "null", 1, inert,
            "activations in that buffer"),
    acting(flag("/activation_checkpointing/synchronize_checkpoint_boundary", "false", measured,
                "wait for the device at each"),
           set_synchronize),
    flag("/activation_checkpointing/profile", "false", inert, "logging"),

    at(stage_3,
       optional(section("/aio", measured, "asynchronous disk access, for offload to NVMe"))),
    at(stage_3, acting(integer("/aio/block_size", "1048576", 1, measured,
                               "bytes of a request; smaller tensors stay in memory, as do those "
                               "below 1 MiB"),
                       set_disk<&DiskUse::block_bytes>)),
    at(stage_3, acting(integer("/aio/queue_depth", "8", 1, measured, "requests in flight"),
                       set_disk<&DiskUse::queue_depth>)),
    at(stage_3, acting(integer("/aio/intra_op_parallelism", "1", 1, measured, "threads"),
                       set_disk<&DiskUse::threads>)),
    at(stage_3, flag("/aio/single_submit", "false", not_built, "submit requests one by one")),
    at(stage_3, flag("/aio/overlap_events", "true", not_built, "submit and wait at once")),
    at(stage_3, flag("/aio/use_gds", "false", not_built, "GPUDirect Storage")),
};

}  // namespace

std::span<const Knob> engine() {
  return table;
}

}  // namespace dstune::rows
