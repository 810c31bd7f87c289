#include <array>

#include "deepspeed/knob_rows.hpp"

namespace dstune::rows {

namespace {

void set_bf16(TrainingConfig& config, const KnobValue& value) {
  if (std::get<bool>(value)) config.precision = Precision::bf16;
}
void set_fp16(TrainingConfig& config, const KnobValue& value) {
  if (std::get<bool>(value)) config.precision = Precision::fp16;
}
void set_loss_scale(TrainingConfig& config, const KnobValue& value) {
  config.loss_scale.fixed = std::get<double>(value);
}
void set_initial_power(TrainingConfig& config, const KnobValue& value) {
  config.loss_scale.initial_power = std::get<std::int64_t>(value);
}
void set_window(TrainingConfig& config, const KnobValue& value) {
  config.loss_scale.window = std::get<std::int64_t>(value);
}
void set_hysteresis(TrainingConfig& config, const KnobValue& value) {
  config.loss_scale.hysteresis = std::get<std::int64_t>(value);
}
void set_consecutive_hysteresis(TrainingConfig& config, const KnobValue& value) {
  config.loss_scale.consecutive_hysteresis = std::get<bool>(value);
}
void set_minimum(TrainingConfig& config, const KnobValue& value) {
  config.loss_scale.minimum = static_cast<double>(std::get<std::int64_t>(value));
}

// Types of states follow from several keys together; training_config() reads them.
constexpr std::array table = {
    model(optional(section("/bf16", measured, "training in bfloat16 with fp32 master weights"))),
    acting(flag("/bf16/enabled", "false", measured, "on or off"), set_bf16),
    at(stage_1,
       flag("/bf16/immediate_grad_update", "false", measured,
            "with grad_accum_dtype fp32: add up each gradient at once, not behind backward")),
    flag("/bf16/check_grad_overflow", "true", inert,
         "look for infinities in gradients, in a pass of its own: here their norm finds them"),
    flag("/bf16/bf16_master_weights_and_grads", "false", measured,
         "master weights in bfloat16: offloaded, or with bf16_optimizer_states"),
    flag("/bf16/bf16_optimizer_states", "false", measured, "moments in bfloat16, too"),
    model(section("/bfloat16", measured, "another name of bf16")),
    acting(flag("/bfloat16/enabled", "false", measured, "on or off"), set_bf16),
    at(stage_1,
       flag("/bfloat16/immediate_grad_update", "false", measured,
            "with grad_accum_dtype fp32: add up each gradient at once, not behind backward")),
    flag("/bfloat16/check_grad_overflow", "true", inert,
         "look for infinities in gradients, in a pass of its own: here their norm finds them"),
    flag("/bfloat16/bf16_master_weights_and_grads", "false", measured,
         "master weights in bfloat16: offloaded, or with bf16_optimizer_states"),
    flag("/bfloat16/bf16_optimizer_states", "false", measured, "moments in bfloat16, too"),

    model(section("/fp16", measured,
                  "training in half precision with a loss scale and fp32 master weights")),
    acting(flag("/fp16/enabled", "false", measured, "on or off"), set_fp16),
    flag("/fp16/auto_cast", "false", inert, "cast the model's inputs"),
    acting(not_from_flag(number("/fp16/loss_scale", "0", 0, std::numeric_limits<double>::max(),
                                measured, "0: dynamic")),
           set_loss_scale),
    acting(integer("/fp16/initial_scale_power", "16", -unbounded, measured,
                   "first dynamic scale, power of two"),
           set_initial_power),
    acting(not_from_flag(integer("/fp16/loss_scale_window", "1000", -unbounded, measured,
                                 "steps without overflow before the scale is raised")),
           set_window),
    // Stage 0 has a scaler of its own, without them.
    acting(at(stages_1_2_3, integer("/fp16/hysteresis", "2", -unbounded, measured,
                                    "overflows before the scale falls")),
           set_hysteresis),
    acting(at(stages_1_2_3, flag("/fp16/consecutive_hysteresis", "false", measured,
                                 "count only overflows in a row")),
           set_consecutive_hysteresis),
    acting(not_from_flag(
               integer("/fp16/min_loss_scale", "1", -unbounded, measured, "lowest dynamic scale")),
           set_minimum),
    flag("/fp16/fp16_master_weights_and_grads", "false", measured,
         "master weights in fp16: offloaded"),

    section("/amp", inert, "NVIDIA Apex mixed precision"),
    flag("/amp/enabled", "false", refused, "on or off"),
    section("/torch_autocast", inert, "PyTorch's automatic mixed precision"),
    flag("/torch_autocast/enabled", "false", refused, "on or off"),
    not_null(
        not_auto(text("/torch_autocast/dtype", "null", element_types, inert, "type of the casts"))),
    not_null(list("/torch_autocast/lower_precision_safe_modules", "null", inert,
                  "modules that are cast")),
    section("/data_types", measured, "types beside those of the mode"),
    at(stages_1_3, text("/data_types/grad_accum_dtype", "null", element_types, measured,
                        "sums of gradients: the mode's type, or fp32")),
    text("/data_types/param_dtype", "null", element_types, inert,
         "parameters; must equal the mode's"),
    text("/data_types/buffer_dtype", "null", element_types, inert, "the module's buffers"),
};

}  // namespace

std::span<const Knob> precision() {
  return table;
}

}  // namespace dstune::rows
