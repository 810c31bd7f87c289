#pragma once
/// The memory that a configuration needs: that of a plan over its operations, and that of the
/// user's own training (Hugging Face under DeepSpeed). All functions: Local.

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "dstune/core/experiment.hpp"
#include "dstune/core/job.hpp"
#include "dstune/core/model_profile.hpp"
#include "dstune/core/training_config.hpp"
#include "dstune/model/model_spec.hpp"
#include "dstune/plan/step_plan.hpp"

namespace dstune {

/// An instant for each operation that does something, in program order: the fullest one since the
/// operation before. Instants of the first step alone (stage 3's tracing) come first. One cycle
/// follows, in which micro-steps that are alike stand for each other.
[[nodiscard]] MemoryTimeline memory_timeline(const StepPlan& plan);

struct TargetMemory {
  /// The least memory of a device with which one rank runs: its fullest instant.
  std::int64_t total_bytes = 0;
  /// The memory that nvidia-smi will show of one rank where there is room; 0 on processors.
  std::int64_t shown_bytes = 0;
  /// The parts that add up to the total: parameters, gradients, optimizer, buckets, activations,
  /// logits, step (temporary copies of the update), framework (context, libraries, the allocator's
  /// rounding).
  std::map<std::string, std::int64_t> parts;
  /// Bytes of tensors of one rank at each instant that may be the fullest: loss (backward begins),
  /// layers and first_layer (backward of the last and of the first layer), reduction (backward
  /// ends), update.
  std::map<std::string, std::int64_t> instants;
  std::int64_t host_bytes = 0;  ///< of one rank; of what is offloaded
  /// Before and after the training, beside it: each rank reads the whole model from its files, and
  /// one rank of the job gathers it to write them.
  std::int64_t loading_bytes = 0, saving_bytes = 0;
  std::int64_t disk_bytes = 0;  ///< of one rank's files, where something is offloaded to a disk
};

/// A plan is as near as this, in percent of the memory that there is: what needs less than the rest
/// fits, what needs more than all fits not, and between them is the edge
/// (docs/figures/fidelity.md).
inline constexpr double edge_percent_below = 3;
/// A GPU's memory may be exceeded by so much in the plan of a training that runs after all.
inline constexpr double edge_percent_above = 1.5;
/// Processes take more of a host than what they offload, by at least the first, and in public
/// trainings of Hugging Face by about the second (docs/inside/memory.md, "Host memory").
inline constexpr double host_percent_of_processes = 5;
inline constexpr double host_percent_of_trainings = 30;

/// The part of the parameters that trains where others are frozen (TargetSpec::trainable).
struct TrainedPart {
  double share = 1;           ///< of the model's parameters; LoRA's matrices count, too
  std::int64_t adapters = 0;  ///< modules that LoRA wraps
};
TrainedPart trained_part(const ModelSpec& model, const TargetSpec& target);

/// Calculates the target's memory. docs/inside/memory.md has the parts of the formula and their
/// sources; docs/figures/memory.md compares it with measurements. All zero for
/// TargetFramework::self.
TargetMemory target_memory(const ModelSpec& model, const TrainingConfig& config, int group_size,
                           const TargetSpec& target);

/// The same for one configuration after another of a model: what their memory has in common, such
/// as stage 3's gathers, is made once.
class TargetPlanner {
 public:
  /// Both outlive it.
  TargetPlanner(const ModelSpec& model, const TargetSpec& target);
  TargetPlanner(TargetPlanner&& other) noexcept;
  TargetPlanner& operator=(TargetPlanner&& other) noexcept;
  ~TargetPlanner();

  TargetMemory memory(const TrainingConfig& config, int group_size);

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

/// The model's profile in a training of this configuration's precision, sequence length and knobs
/// that activations depend on, of one sample.
ModelProfile model_profile(const ModelSpec& model, const TrainingConfig& config,
                           const TargetSpec& target);

}  // namespace dstune
