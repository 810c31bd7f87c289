#include <array>

#include "deepspeed/knob_rows.hpp"

namespace dstune::rows {

namespace {

// Parts of DeepSpeed that train in another way: their switches are refused by name.
constexpr std::array table = {

    section("/elasticity", inert, "batch sizes for changing numbers of GPUs"),
    not_auto(flag("/elasticity/enabled", "false", refused, "on or off")),

    model(section("/tensor_parallel", inert, "tensor parallelism")),
    integer("/tensor_parallel/autotp_size", "0", -unbounded, refused, "ranks that share a layer"),
    text("/tensor_parallel/dtype", "\"auto\"", "auto", inert, "set by programs alone"),
    flag("/tensor_parallel/tp_overlap_comm", "false", inert, "overlap its collectives"),
    nested(section("/tensor_parallel/tp", inert, "groups")),
    integer("/tensor_parallel/tp/tp_size", "1", -unbounded, refused, "ranks of a group"),
    integer("/tensor_parallel/tp/tp_grain_size", "1", -unbounded, inert, "grain of a split"),
    optional(section("/tensor_parallel/tp/mpu", inert, "set by programs alone")),
    optional(section("/tensor_parallel/tp/tp_group", inert, "set by programs alone")),
    nested(section("/tensor_parallel/tensor_parallel", inert, "another name of tp")),
    integer("/tensor_parallel/tensor_parallel/tp_size", "1", -unbounded, refused,
            "ranks of a group"),
    integer("/tensor_parallel/tensor_parallel/tp_grain_size", "1", -unbounded, inert,
            "grain of a split"),
    optional(section("/tensor_parallel/tensor_parallel/mpu", inert, "set by programs alone")),
    optional(section("/tensor_parallel/tensor_parallel/tp_group", inert, "set by programs alone")),
    list("/tensor_parallel/injection_policy_tuple", "null", inert, "layers that are split"),
    free_form(optional(section("/tensor_parallel/partition_config", inert, "how they are split"))),
    text("/tensor_parallel/preset_model", "null", "", inert, "a known model's split"),
    flag("/tensor_parallel/keep_module_on_host", "false", inert, "load weights to the host"),
    flag("/tensor_parallel/kernel_inject", "false", inert, "inference kernels"),
    flag("/tensor_parallel/replace_with_kernel_inject", "false", inert,
         "another name of kernel_inject"),
    not_null(integer("/sequence_parallel_size", "1", 1, refused, "sequence parallelism")),
    section("/pipeline", inert, "pipeline parallelism, for models built of stages"),
    section("/expert_parallel", inert, "expert parallelism"),
    flag("/expert_parallel/enabled", "false", refused, "on or off"),
    flag("/use_data_before_expert_parallelism", "false", inert, "order of expert-parallel ranks"),

    model(section("/hybrid_engine", inert, "training and generation in turn")),
    flag("/hybrid_engine/enabled", "false", refused, "on or off"),
    integer("/hybrid_engine/max_out_tokens", "512", -unbounded, inert, "generated tokens"),
    integer("/hybrid_engine/inference_tp_size", "1", -unbounded, inert, "ranks that generate"),
    flag("/hybrid_engine/release_inference_cache", "false", inert, "free it after generating"),
    flag("/hybrid_engine/pin_parameters", "true", inert, "keep them gathered"),
    integer("/hybrid_engine/tp_gather_partition_size", "8", -unbounded, inert, "gathered at once"),
    flag("/hybrid_engine/enable_cuda_graph", "false", inert, "generation in CUDA graphs"),

    model(section("/compile", inert, "DeepCompile, where the program calls compile()")),
    flag("/compile/deepcompile", "false", refused, "on or off"),
    flag("/compile/free_activation", "false", inert, "free activations early"),
    integer("/compile/free_activation_threshold", "10485760", -unbounded, inert, "bytes"),
    flag("/compile/offload_activation", "false", inert, "activations to the host"),
    flag("/compile/offload_activation_pin_memory", "true", inert, "page-locked host memory"),
    flag("/compile/offload_opt_states", "false", inert, "optimizer states to the host"),
    flag("/compile/double_buffer", "true", inert, "two buffers"),
    flag("/compile/symmetric_memory", "false", inert, "symmetric memory"),
    flag("/compile/debug_log", "false", inert, "logging"),
    flag("/compile/offload_parameters", "false", inert, "parameters to the host"),
    flag("/compile/sync_before_reduce", "false", inert, "wait there"),
    flag("/compile/sync_after_reduce", "false", inert, "wait there"),
    flag("/compile/sync_before_allgather", "false", inert, "wait there"),
    flag("/compile/sync_after_allgather", "false", inert, "wait there"),
    flag("/compile/keep_int_input_tensors", "true", inert, "for tracing"),
    flag("/compile/keep_all_input_tensors", "false", inert, "for tracing"),
    list_of_texts("/compile/passes", "null", "z1|z3|autosp|autotp", inert, "its passes"),

    section("/sparse_attention", refused, "sparse attention"),
    section("/quantize_training", inert, "quantization by eigenvalues, taken out of DeepSpeed"),
    section("/eigenvalue", inert, "quantization by eigenvalues, taken out of DeepSpeed"),
    model(section("/weight_quantization", inert, "of inference")),
    flag("/weight_quantization/enabled", "true", inert, "on or off"),
    integer("/weight_quantization/num_bits", "8", -unbounded, inert, "bits of a weight"),
    text("/weight_quantization/q_type", "\"symmetric\"", "asymmetric|symmetric", inert, "kind"),
    integer("/weight_quantization/q_groups", "1", -unbounded, inert, "groups"),
    free_form(section("/weight_quantization/quantized_initialization", inert, "while loading")),
    free_form(section("/weight_quantization/post_init_quant", inert, "after loading")),
};

}  // namespace

std::span<const Knob> features() {
  return table;
}

}  // namespace dstune::rows
