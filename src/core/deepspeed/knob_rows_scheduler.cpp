#include <array>

#include "deepspeed/knob_rows.hpp"

namespace dstune::rows {

namespace {

// A schedule changes the learning rate, not the time or the memory of a step.
constexpr std::array table = {

    section("/scheduler", inert, "the learning rate's course"),
    text("/scheduler/type", "null",
         "LRRangeTest|OneCycle|WarmupLR|WarmupDecayLR|WarmupCosineLR|LRScheduler|LambdaLR|"
         "MultiplicativeLR|StepLR|MultiStepLR|ConstantLR|LinearLR|ExponentialLR|SequentialLR|"
         "CosineAnnealingLR|ChainedScheduler|ReduceLROnPlateau|CyclicLR|"
         "CosineAnnealingWarmRestarts|OneCycleLR|PolynomialLR",
         inert, "DeepSpeed's or PyTorch's name of it"),
    section("/scheduler/params", inert, "arguments of the scheduler"),
    not_null(number("/scheduler/params/lr_range_test_min_lr", "0.001", -unbounded, unbounded, inert,
                    "LRRangeTest")),
    not_null(whole(
        integer("/scheduler/params/lr_range_test_step_size", "2000", 1, inert, "LRRangeTest"))),
    not_null(number("/scheduler/params/lr_range_test_step_rate", "1.0", -unbounded, unbounded,
                    inert, "LRRangeTest")),
    flag("/scheduler/params/lr_range_test_staircase", "false", inert, "LRRangeTest"),
    not_null(number("/scheduler/params/cycle_min_lr", "null", -unbounded, unbounded, inert,
                    "OneCycle, needed")),
    not_null(number("/scheduler/params/cycle_max_lr", "null", -unbounded, unbounded, inert,
                    "OneCycle, needed")),
    not_null(integer("/scheduler/params/cycle_first_step_size", "2000", 1, inert, "OneCycle")),
    integer("/scheduler/params/cycle_second_step_size", "null", 0, inert,
            "OneCycle; as the first where unset"),
    not_null(
        integer("/scheduler/params/cycle_first_stair_count", "0", -unbounded, inert, "OneCycle")),
    integer("/scheduler/params/cycle_second_stair_count", "null", -unbounded, inert,
            "OneCycle; as the first where unset"),
    not_null(integer("/scheduler/params/decay_step_size", "0", -unbounded, inert, "OneCycle")),
    not_null(
        number("/scheduler/params/decay_lr_rate", "0", -unbounded, unbounded, inert, "OneCycle")),
    not_null(
        number("/scheduler/params/decay_mom_rate", "0", -unbounded, unbounded, inert, "OneCycle")),
    flag("/scheduler/params/cycle_momentum", "true", inert, "OneCycle"),
    not_null(
        number("/scheduler/params/cycle_min_mom", "0.8", -unbounded, unbounded, inert, "OneCycle")),
    not_null(
        number("/scheduler/params/cycle_max_mom", "0.9", -unbounded, unbounded, inert, "OneCycle")),
    not_null(number("/scheduler/params/warmup_min_lr", "0", -unbounded, unbounded, inert,
                    "WarmupLR, WarmupDecayLR")),
    number("/scheduler/params/warmup_max_lr", "null", -unbounded, unbounded, inert,
           "WarmupLR: the optimizer's rate where unset; WarmupDecayLR: 0.001"),
    not_null(whole(
        integer("/scheduler/params/warmup_num_steps", "1000", 1, inert, "the Warmup family"))),
    text("/scheduler/params/warmup_type", "\"log\"", "", inert,
         "the Warmup family: log or linear; log where it is neither"),
    not_null(integer("/scheduler/params/total_num_steps", "null", -unbounded, inert,
                     "WarmupDecayLR, WarmupCosineLR: needed")),
    not_null(number("/scheduler/params/warmup_min_ratio", "0", -unbounded, unbounded, inert,
                    "WarmupCosineLR")),
    not_null(number("/scheduler/params/cos_min_ratio", "0.0001", -unbounded, unbounded, inert,
                    "WarmupCosineLR")),
};

}  // namespace

std::span<const Knob> scheduler() {
  return table;
}

}  // namespace dstune::rows
