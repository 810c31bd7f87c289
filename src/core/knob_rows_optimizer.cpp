#include <array>

#include "knob_rows.hpp"

namespace dstune::rows {

namespace {

template <auto member>
void set(TrainingConfig& config, const KnobValue& value) {
  config.optimizer.*member = std::get<double>(value);
}

constexpr std::array table = {
    section("/optimizer", measured, "the optimizer and its parameters"),
    // The kind follows from type, adam_w_mode and torch_adam together.
    text("/optimizer/type", "\"AdamW\"", "", measured, "Adam or AdamW, in any case"),
    flag("/optimizer/legacy_fusion", "false", inert, "fuse the optimizer with the fp16 wrapper"),
    closed(section("/optimizer/params", measured, "arguments of the optimizer")),
    acting(number("/optimizer/params/lr", "0.001", 0, unbounded, measured, "learning rate"),
           set<&OptimizerConfig::learning_rate>),
    list("/optimizer/params/betas", "[0.9, 0.999]", measured, "decay of the two moments"),
    acting(number("/optimizer/params/betas/0", "0.9", 0, 1, measured, "of the first, below 1"),
           set<&OptimizerConfig::beta1>),
    acting(number("/optimizer/params/betas/1", "0.999", 0, 1, measured, "of the second, below 1"),
           set<&OptimizerConfig::beta2>),
    acting(number("/optimizer/params/eps", "1e-8", 0, unbounded, measured, "added to the root"),
           set<&OptimizerConfig::epsilon>),
    acting(number("/optimizer/params/weight_decay", "0", 0, unbounded, measured,
                  "weight decay; with torch_adam and AdamW 0.01 where unset"),
           set<&OptimizerConfig::weight_decay>),
    flag("/optimizer/params/adam_w_mode", "true", measured,
         "decoupled weight decay, also for type Adam"),
    flag("/optimizer/params/torch_adam", "false", measured, "PyTorch's own implementation"),
    flag("/optimizer/params/bias_correction", "true", refused, "correct the moments' start"),
    flag("/optimizer/params/amsgrad", "false", refused, "the AMSGrad variant"),
    flag("/optimizer/params/maximize", "false", refused, "ascend instead of descend"),
    flag("/optimizer/params/set_grad_none", "true", inert, "free gradients instead of zeroing"),
    flag("/optimizer/params/foreach", "null", inert, "PyTorch: loops over lists"),
    flag("/optimizer/params/fused", "null", inert, "PyTorch: one kernel"),
    flag("/optimizer/params/capturable", "false", inert, "PyTorch: inside CUDA graphs"),
    flag("/optimizer/params/differentiable", "false", inert, "PyTorch: gradients of the update"),
    instead("write gradient_clipping at the top level instead",
            number("/optimizer/params/max_grad_norm", "null", 0, unbounded, refused,
                   "refused by DeepSpeed")),

    // A schedule changes the learning rate, not the time or the memory of a step.
    section("/scheduler", inert, "the learning rate's course"),
    text("/scheduler/type", "null", "", inert, "DeepSpeed's or PyTorch's name of it"),
    section("/scheduler/params", inert, "arguments of the scheduler"),
    number("/scheduler/params/lr_range_test_min_lr", "0.001", 0, unbounded, inert, "LRRangeTest"),
    integer("/scheduler/params/lr_range_test_step_size", "2000", 1, inert, "LRRangeTest"),
    number("/scheduler/params/lr_range_test_step_rate", "1.0", 0, unbounded, inert, "LRRangeTest"),
    flag("/scheduler/params/lr_range_test_staircase", "false", inert, "LRRangeTest"),
    number("/scheduler/params/cycle_min_lr", "null", 0, unbounded, inert, "OneCycle, needed"),
    number("/scheduler/params/cycle_max_lr", "null", 0, unbounded, inert, "OneCycle, needed"),
    integer("/scheduler/params/cycle_first_step_size", "2000", 1, inert, "OneCycle"),
    number("/scheduler/params/decay_lr_rate", "0", 0, unbounded, inert, "OneCycle"),
    number("/scheduler/params/cycle_min_mom", "0.8", 0, 1, inert, "OneCycle"),
    number("/scheduler/params/cycle_max_mom", "0.9", 0, 1, inert, "OneCycle"),
    number("/scheduler/params/warmup_min_lr", "0", 0, unbounded, inert, "WarmupLR, WarmupDecayLR"),
    number("/scheduler/params/warmup_max_lr", "0.001", 0, unbounded, inert,
           "WarmupLR, WarmupDecayLR; WarmupLR: the optimizer's rate where unset"),
    integer("/scheduler/params/warmup_num_steps", "1000", 0, inert, "the Warmup family"),
    text("/scheduler/params/warmup_type", "\"log\"", "log|linear", inert, "the Warmup family"),
    integer("/scheduler/params/total_num_steps", "null", 1, inert,
            "WarmupDecayLR, WarmupCosineLR: needed"),
    number("/scheduler/params/warmup_min_ratio", "0", 0, 1, inert, "WarmupCosineLR"),
    number("/scheduler/params/cos_min_ratio", "0.0001", 0, 1, inert, "WarmupCosineLR"),
};

}  // namespace

std::span<const Knob> optimizer() {
  return table;
}

}  // namespace dstune::rows
