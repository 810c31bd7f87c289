#include <array>
#include <type_traits>

#include "deepspeed/knob_rows.hpp"

namespace dstune::rows {

namespace {

template <auto member>
void set(TrainingConfig& config, const KnobValue& value) {
  auto& target = config.optimizer.*member;
  target = std::get<std::remove_reference_t<decltype(target)>>(value);
}

constexpr std::array table = {
    section("/optimizer", measured, "the optimizer and its parameters"),
    // The kind follows from type and adam_w_mode together.
    not_null(not_auto(text("/optimizer/type", "\"AdamW\"", "", measured,
                           "Adam, AdamW, Lion, Adagrad in any case, or SGD"))),
    flag("/optimizer/legacy_fusion", "false", inert, "fuse the optimizer with the fp16 wrapper"),
    optional(closed(section("/optimizer/params", measured, "arguments of the optimizer"))),
    acting(not_null(number("/optimizer/params/lr", "0.001", 0, unbounded, measured,
                           "learning rate; Adagrad 0.01 where unset")),
           set<&OptimizerConfig::learning_rate>),
    not_null(list("/optimizer/params/betas", "[0.9, 0.999]", measured, "decay of the two moments")),
    acting(not_null(not_auto(number("/optimizer/params/betas/0", "0.9", 0, 1, measured,
                                    "of the first, below 1"))),
           set<&OptimizerConfig::beta1>),
    acting(not_null(not_auto(number("/optimizer/params/betas/1", "0.999", 0, 1, measured,
                                    "of the second, below 1"))),
           set<&OptimizerConfig::beta2>),
    acting(not_null(number("/optimizer/params/eps", "1e-8", 0, unbounded, measured,
                           "Adam, Adagrad: added to the root; Adagrad 1e-10 where unset")),
           set<&OptimizerConfig::epsilon>),
    acting(not_null(number("/optimizer/params/weight_decay", "0", 0, unbounded, measured,
                           "weight decay; with torch_adam and AdamW 0.01 where unset")),
           set<&OptimizerConfig::weight_decay>),
    flag("/optimizer/params/adam_w_mode", "true", measured,
         "decoupled weight decay, also for type Adam"),
    acting(flag("/optimizer/params/torch_adam", "false", measured, "PyTorch's own implementation"),
           set<&OptimizerConfig::torch_adam>),
    acting(not_null(number("/optimizer/params/momentum", "0", 0, unbounded, measured,
                           "SGD: decay of the sum of gradients; 0 keeps none")),
           set<&OptimizerConfig::momentum>),
    acting(not_null(number("/optimizer/params/dampening", "0", -unbounded, unbounded, measured,
                           "SGD: 1 minus the gradient's share in that sum")),
           set<&OptimizerConfig::dampening>),
    acting(
        not_null(flag("/optimizer/params/nesterov", "false", measured, "SGD: Nesterov momentum")),
        set<&OptimizerConfig::nesterov>),
    acting(not_null(number("/optimizer/params/lr_decay", "0", 0, unbounded, measured,
                           "Adagrad, not offloaded: fall of the learning rate")),
           set<&OptimizerConfig::learning_rate_decay>),
    acting(not_null(number("/optimizer/params/initial_accumulator_value", "0", 0, unbounded,
                           measured, "Adagrad, not offloaded: first sum of squares")),
           set<&OptimizerConfig::initial_accumulator>),
    flag("/optimizer/params/bias_correction", "true", refused, "correct the moments' start"),
    flag("/optimizer/params/amsgrad", "false", refused, "the AMSGrad variant"),
    flag("/optimizer/params/maximize", "false", refused, "ascend instead of descend"),
    flag("/optimizer/params/fp32_optimizer_states", "true", measured,
         "of the optimizer on the host; false takes the master weights' type"),
    flag("/optimizer/params/set_grad_none", "true", inert, "free gradients instead of zeroing"),
    flag("/optimizer/params/foreach", "null", inert, "PyTorch: loops over lists"),
    flag("/optimizer/params/fused", "null", inert, "PyTorch: one kernel"),
    flag("/optimizer/params/capturable", "false", inert, "PyTorch: inside CUDA graphs"),
    instead("write false: DeepSpeed updates parameters in place",
            not_null(flag("/optimizer/params/differentiable", "false", refused,
                          "PyTorch: gradients of the update"))),
    instead("write gradient_clipping at the top level instead",
            not_null(not_auto(number("/optimizer/params/max_grad_norm", "null", 0, unbounded,
                                     refused, "refused by DeepSpeed")))),
};

}  // namespace

std::span<const Knob> optimizer() {
  return table;
}

}  // namespace dstune::rows
