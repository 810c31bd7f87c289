/// The memory of the target's optimizer, by who makes it: DeepSpeed from the config's section, or
/// the user's framework.

#include "dstune/base/error.hpp"
#include "target/target.hpp"

namespace dstune::plan {
namespace {

/// bitsandbytes: a state takes a byte, and a scale of four bytes stands for a block of 256
/// (bitsandbytes/optim/optimizer.py, init_state; functional.py, optimizer_update_8bit_blockwise).
constexpr std::int64_t elements_of_block = 256;
constexpr std::int64_t scale_bytes = 4;

/// The release of PyTorch whose loops over lists make one temporary tensor: the denominator of
/// Adam was a second one before (torch/optim/adamw.py).
constexpr int torch_with_one_temporary = 20100;

std::int64_t of_config_moment_bytes(const TrainingConfig& config) {
  const int moments =
      (has_first_moment(config.optimizer) ? 1 : 0) + (has_second_moment(config.optimizer) ? 1 : 0);
  return moments * (config.low_precision_moments ? 2 : 4);
}

/// PyTorch's loops over lists of tensors make new ones (torch/optim/adam.py, sgd.py, adagrad.py:
/// _multi_tensor_…); DeepSpeed's kernels allocate nothing.
std::int64_t of_config_temporary_bytes(const OptimizerConfig& optimizer) {
  const bool decays = optimizer.weight_decay != 0;
  switch (optimizer.kind) {
    case OptimizerKind::adamw:
      return optimizer.torch_adam ? 4 : 0;
    case OptimizerKind::adam:
      return optimizer.torch_adam ? (decays ? 8 : 4) : 0;
    case OptimizerKind::adagrad:
      return 8;
    case OptimizerKind::sgd:
      return decays ? 4 : 0;
    case OptimizerKind::lion:
      return 0;
  }
  throw LogicError("an optimizer is a known one");
}

}  // namespace

std::int64_t moments_bytes(const TrainingConfig& config, const TargetSpec& target,
                           std::int64_t elements) {
  switch (target.optimizer) {
    case TargetOptimizer::of_config:
      return of_config_moment_bytes(config) * elements;
    case TargetOptimizer::adamw_8bit:
      return 2 * (elements + scale_bytes * (elements / elements_of_block));
    case TargetOptimizer::adafactor:
      // ZeRO hands it flat partitions, whose second moments have no rows and columns
      // (transformers/optimization.py, _get_options: factored with two dimensions or more).
      return config.zero_stage > 0 ? 4 * elements : 0;
    case TargetOptimizer::lion:
    case TargetOptimizer::muon:
      return 4 * elements;
    case TargetOptimizer::sgd:
      return 0;  // the Trainer's has no momentum
    case TargetOptimizer::adamw_torch:
    case TargetOptimizer::adamw_torch_fused:
    case TargetOptimizer::deepspeed_fused_adam:
    case TargetOptimizer::deepspeed_cpu_adam:
      return (config.low_precision_moments ? 4 : 8) * elements;
  }
  throw LogicError("an optimizer is a known one");
}

std::int64_t temporary_bytes(const TrainingConfig& config, const TargetSpec& target) {
  switch (target.optimizer) {
    case TargetOptimizer::of_config:
      return of_config_temporary_bytes(config.optimizer);
    case TargetOptimizer::adamw_torch:
      return target.torch > 0 && target.torch < torch_with_one_temporary ? 8 : 4;
    case TargetOptimizer::adafactor:
      return 8;  // the squared gradient and the update that is made of it
    case TargetOptimizer::adamw_torch_fused:
    case TargetOptimizer::adamw_8bit:
    case TargetOptimizer::lion:
    case TargetOptimizer::sgd:
    case TargetOptimizer::muon:
    case TargetOptimizer::deepspeed_fused_adam:
    case TargetOptimizer::deepspeed_cpu_adam:
      return 0;
  }
  throw LogicError("an optimizer is a known one");
}

bool is_flattened_at_stage_0(const TrainingConfig& config, const TargetSpec& target) {
  const OptimizerConfig& optimizer = config.optimizer;
  const bool is_fused_adam = !optimizer.torch_adam && (optimizer.kind == OptimizerKind::adam ||
                                                       optimizer.kind == OptimizerKind::adamw);
  return target.optimizer == TargetOptimizer::deepspeed_fused_adam ||
         (target.optimizer == TargetOptimizer::of_config && is_fused_adam);
}

}  // namespace dstune::plan
