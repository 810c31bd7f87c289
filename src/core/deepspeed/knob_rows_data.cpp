#include <array>

#include "deepspeed/knob_rows.hpp"

namespace dstune::rows {

namespace {

// What changes the data or the model while training: their switches are refused by name.
constexpr std::array table = {

    flag("/dataloader_drop_last", "false", inert, "leave out the last, smaller batch"),
    not_auto(integer("/vocabulary_size", "null", -unbounded, inert, "a warning where it is odd")),
    section("/curriculum_learning", inert, "sequences that grow during training"),
    flag("/curriculum_learning/enabled", "false", refused, "on or off"),
    section("/progressive_layer_drop", inert, "skipping of layers"),
    flag("/progressive_layer_drop/enabled", "false", refused, "on or off"),

    section("/data_efficiency", inert, "sampling and dropping of data"),
    flag("/data_efficiency/enabled", "false", refused, "on or off"),
    integer("/data_efficiency/seed", "1234", -unbounded, inert, "seed"),
    section("/data_efficiency/data_sampling", inert, "sampling"),
    flag("/data_efficiency/data_sampling/enabled", "false", inert, "on or off"),
    integer("/data_efficiency/data_sampling/num_epochs", "1000", -unbounded, inert, "epochs"),
    integer("/data_efficiency/data_sampling/num_workers", "0", -unbounded, inert, "loaders"),
    flag("/data_efficiency/data_sampling/pin_memory", "false", inert, "page-locked memory"),
    section("/data_efficiency/data_sampling/curriculum_learning", inert, "easy samples first"),
    not_auto(flag("/data_efficiency/data_sampling/curriculum_learning/enabled", "false", refused,
                  "on or off")),
    section("/data_efficiency/data_sampling/dynamic_batching", inert, "batches by length"),
    not_auto(flag("/data_efficiency/data_sampling/dynamic_batching/enabled", "false", refused,
                  "on or off")),
    text("/data_efficiency/data_sampling/dynamic_batching/lr_scaling_method", "\"linear\"", "",
         inert, "linear, sqrt or none"),
    not_null(not_auto(integer("/data_efficiency/data_sampling/dynamic_batching/min_batch_size", "1",
                              -unbounded, inert, "samples"))),
    not_null(not_auto(integer("/data_efficiency/data_sampling/dynamic_batching/max_batch_size",
                              "null", -unbounded, inert, "samples"))),
    text("/data_efficiency/data_sampling/dynamic_batching/sequence_picking_order", "\"dataloader\"",
         "", inert, "random, seqlen or dataloader"),
    flag("/data_efficiency/data_sampling/dynamic_batching/verbose", "false", inert, "logging"),
    section("/data_efficiency/data_routing", inert, "dropping of tokens"),
    flag("/data_efficiency/data_routing/enabled", "false", inert, "on or off"),
    section("/data_efficiency/data_routing/random_ltd", inert, "random layerwise dropping"),
    flag("/data_efficiency/data_routing/random_ltd/enabled", "false", refused, "on or off"),

    section("/compression_training", inert, "quantization and pruning"),
    section("/compression_training/shared_parameters", inert, "of quantization"),
    section("/compression_training/layer_reduction", inert, "a student with fewer layers"),
    flag("/compression_training/layer_reduction/enabled", "false", refused, "on or off"),
    section("/compression_training/weight_quantization", inert, "weight quantization"),
    section("/compression_training/weight_quantization/shared_parameters", inert, "of all groups"),
    flag("/compression_training/weight_quantization/shared_parameters/enabled", "false", refused,
         "on or off"),
    not_null(not_auto(
        text("/compression_training/weight_quantization/shared_parameters/quantization_type",
             "\"symmetric\"", "symmetric|asymmetric", inert, "kind"))),
    not_null(not_auto(text("/compression_training/weight_quantization/shared_parameters/rounding",
                           "\"nearest\"", "nearest|stochastic", inert, "rounding"))),
    flag("/compression_training/weight_quantization/shared_parameters/quantizer_kernel", "false",
         inert, "DeepSpeed's kernel"),
    integer("/compression_training/weight_quantization/shared_parameters/schedule_offset", "0",
            -unbounded, inert, "first step"),
    integer("/compression_training/weight_quantization/shared_parameters/quantize_groups", "1",
            -unbounded, inert, "groups"),
    flag("/compression_training/weight_quantization/shared_parameters/quantize_verbose", "false",
         inert, "logging"),
    flag("/compression_training/weight_quantization/shared_parameters/quantize_weight_in_forward",
         "false", inert, "in forward"),
    section("/compression_training/weight_quantization/shared_parameters/fp16_mixed_quantize",
            inert, "mixed with fp16"),
    of_sections(section("/compression_training/weight_quantization/different_groups", inert,
                        "groups of modules")),
    section("/compression_training/activation_quantization", inert, "activation quantization"),
    section("/compression_training/activation_quantization/shared_parameters", inert,
            "of all groups"),
    flag("/compression_training/activation_quantization/shared_parameters/enabled", "false",
         refused, "on or off"),
    not_null(not_auto(
        text("/compression_training/activation_quantization/shared_parameters/quantization_type",
             "\"symmetric\"", "symmetric|asymmetric", inert, "kind"))),
    not_null(not_auto(
        text("/compression_training/activation_quantization/shared_parameters/range_calibration",
             "\"dynamic\"", "dynamic|static", inert, "range"))),
    integer("/compression_training/activation_quantization/shared_parameters/schedule_offset",
            "1000", -unbounded, inert, "first step"),
    of_sections(section("/compression_training/activation_quantization/different_groups", inert,
                        "groups of modules")),
    section("/compression_training/sparse_pruning", inert, "sparse pruning"),
    section("/compression_training/sparse_pruning/shared_parameters", inert, "of all groups"),
    flag("/compression_training/sparse_pruning/shared_parameters/enabled", "false", refused,
         "on or off"),
    not_null(not_auto(text("/compression_training/sparse_pruning/shared_parameters/method",
                           "\"l1\"", "l1|topk|snip_momentum", inert, "method"))),
    integer("/compression_training/sparse_pruning/shared_parameters/schedule_offset", "1000",
            -unbounded, inert, "first step"),
    of_sections(section("/compression_training/sparse_pruning/different_groups", inert,
                        "groups of modules")),
    section("/compression_training/row_pruning", inert, "row pruning"),
    section("/compression_training/row_pruning/shared_parameters", inert, "of all groups"),
    flag("/compression_training/row_pruning/shared_parameters/enabled", "false", refused,
         "on or off"),
    not_null(not_auto(text("/compression_training/row_pruning/shared_parameters/method", "\"l1\"",
                           "l1|topk", inert, "method"))),
    integer("/compression_training/row_pruning/shared_parameters/schedule_offset", "1000",
            -unbounded, inert, "first step"),
    of_sections(
        section("/compression_training/row_pruning/different_groups", inert, "groups of modules")),
    section("/compression_training/head_pruning", inert, "head pruning"),
    section("/compression_training/head_pruning/shared_parameters", inert, "of all groups"),
    flag("/compression_training/head_pruning/shared_parameters/enabled", "false", refused,
         "on or off"),
    not_null(not_auto(text("/compression_training/head_pruning/shared_parameters/method",
                           "\"topk\"", "l1|topk", inert, "method"))),
    integer("/compression_training/head_pruning/shared_parameters/schedule_offset", "1000",
            -unbounded, inert, "first step"),
    of_sections(
        section("/compression_training/head_pruning/different_groups", inert, "groups of modules")),
    section("/compression_training/channel_pruning", inert, "channel pruning"),
    section("/compression_training/channel_pruning/shared_parameters", inert, "of all groups"),
    flag("/compression_training/channel_pruning/shared_parameters/enabled", "false", refused,
         "on or off"),
    not_null(not_auto(text("/compression_training/channel_pruning/shared_parameters/method",
                           "\"l1\"", "l1|topk", inert, "method"))),
    integer("/compression_training/channel_pruning/shared_parameters/schedule_offset", "1000",
            -unbounded, inert, "first step"),
    of_sections(section("/compression_training/channel_pruning/different_groups", inert,
                        "groups of modules")),
};

}  // namespace

std::span<const Knob> data() {
  return table;
}

}  // namespace dstune::rows
