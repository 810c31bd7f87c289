#include <array>

#include "knob_rows.hpp"

namespace dstune::rows {

namespace {

void set_bf16(TrainingConfig& config, const KnobValue& value) {
  config.precision = std::get<bool>(value) ? Precision::bf16 : Precision::fp32;
}

constexpr std::array table = {
    model(optional(section("/bf16", measured, "training in bfloat16 with fp32 master weights"))),
    acting(flag("/bf16/enabled", "false", measured, "on or off"), set_bf16),
    flag("/bf16/immediate_grad_update", "false", not_built,
         "accumulate each gradient as soon as it is there"),
    flag("/bf16/check_grad_overflow", "true", inert, "look for infinities in gradients"),
    flag("/bf16/bf16_master_weights_and_grads", "false", refused, "master weights in bfloat16"),
    flag("/bf16/bf16_optimizer_states", "false", refused, "moments in bfloat16"),
    model(section("/bfloat16", measured, "another name of bf16")),
    acting(flag("/bfloat16/enabled", "false", measured, "on or off"), set_bf16),
    flag("/bfloat16/immediate_grad_update", "false", not_built,
         "accumulate each gradient as soon as it is there"),
    flag("/bfloat16/check_grad_overflow", "true", inert, "look for infinities in gradients"),
    flag("/bfloat16/bf16_master_weights_and_grads", "false", refused, "master weights in bfloat16"),
    flag("/bfloat16/bf16_optimizer_states", "false", refused, "moments in bfloat16"),

    model(section("/fp16", inert, "training in half precision with a loss scale")),
    flag("/fp16/enabled", "false", refused, "on or off"),
    flag("/fp16/auto_cast", "false", inert, "cast the model's inputs"),
    not_from_flag(number("/fp16/loss_scale", "0", 0, std::numeric_limits<double>::max(), inert,
                         "0: dynamic")),
    integer("/fp16/initial_scale_power", "16", -unbounded, inert,
            "first dynamic scale, power of two"),
    not_from_flag(integer("/fp16/loss_scale_window", "1000", -unbounded, inert,
                          "steps between raises of the scale")),
    integer("/fp16/hysteresis", "2", -unbounded, inert, "overflows before the scale falls"),
    flag("/fp16/consecutive_hysteresis", "false", inert, "count only overflows in a row"),
    not_from_flag(integer("/fp16/min_loss_scale", "1", -unbounded, inert, "lowest dynamic scale")),
    flag("/fp16/fp16_master_weights_and_grads", "false", refused, "master weights in fp16"),

    section("/amp", inert, "NVIDIA Apex mixed precision"),
    flag("/amp/enabled", "false", refused, "on or off"),
    section("/torch_autocast", inert, "PyTorch's automatic mixed precision"),
    flag("/torch_autocast/enabled", "false", refused, "on or off"),
    not_null(
        not_auto(text("/torch_autocast/dtype", "null", element_types, inert, "type of the casts"))),
    not_null(list("/torch_autocast/lower_precision_safe_modules", "null", inert,
                  "modules that are cast")),
    section("/data_types", not_built, "types beside those of the mode"),
    text("/data_types/grad_accum_dtype", "null", element_types, not_built, "accumulated gradients"),
    text("/data_types/param_dtype", "null", element_types, inert,
         "parameters; must equal the mode's"),
    text("/data_types/buffer_dtype", "null", element_types, inert, "the module's buffers"),
};

}  // namespace

std::span<const Knob> precision() {
  return table;
}

}  // namespace dstune::rows
