#pragma once
/// The decided settings of a whole job beside its space: the `autotuning` and `dstune` sections and
/// the command line.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "dstune/core/measurement.hpp"
#include "dstune/core/policy.hpp"

namespace dstune {

/// The content of a plug-in's file (dstune/workload.h), which is checked before anything of it
/// runs. Throws Error if it is no shared library for this machine, lacks a symbol, or was built for
/// another version. One sentence says what is wrong and how to fix it. Local.
std::string check_plugin_library(const std::string& path);

/// When to stop warming up and when to stop measuring.
struct MeasureOptions {
  int start_profile_step = 3;
  int end_profile_step = 5;
  double trial_budget_s = 10;  ///< of timed steps
  /// Somebody wrote start_profile_step: at least so many steps are warm-up, whatever is warm.
  bool asks_for_warmup = false;

  /// A run is a slice of a member's budget; what may be the answer gets more of them.
  [[nodiscard]] double slice_s(const Policy::Measuring& policy = default_policy().measuring) const {
    return trial_budget_s / policy.slices_of_budget;
  }
};

enum class TargetFramework { self, huggingface };
enum class TargetAttention { eager, sdpa, flash };
/// The function that computes activations again: PyTorch's, as Hugging Face's modules call it, or
/// deepspeed.checkpointing, which alone reads the config's section activation_checkpointing.
enum class TargetCheckpointing { torch, deepspeed };
[[nodiscard]] const EnumTexts& texts_of(TargetFramework);
[[nodiscard]] const EnumTexts& texts_of(TargetAttention);
[[nodiscard]] const EnumTexts& texts_of(TargetCheckpointing);
/// The optimizer that trains, by the names of transformers' `optim` where it has one.
enum class TargetOptimizer {
  of_config,          ///< the section `optimizer` of the DeepSpeed config
  adamw_torch,        ///< PyTorch's, over lists of tensors
  adamw_torch_fused,  ///< PyTorch's, in one kernel
  adamw_8bit,         ///< bitsandbytes': moments of one byte
  adafactor,          ///< rows and columns of second moments
  lion,
  sgd,
  muon,
  deepspeed_fused_adam,
  deepspeed_cpu_adam,
};
/// The loss of the next token: how much of the logits it holds.
enum class TargetLoss {
  full,      ///< logits, log-probabilities and their gradients
  in_place,  ///< gradients take the logits' place
  chunked,   ///< a part of the tokens at a time
  fused,     ///< with the head's product, no logits: Liger's kernels, for norms and SwiGLU, too
};
/// The parameters that train, where others are frozen: whatever matches a name, and LoRA's.
struct Trainable {
  std::vector<std::string> names;    ///< of parameters; * stands for any letters
  std::int64_t rank = 0;             ///< of LoRA's matrices; 0: none
  std::vector<std::string> targets;  ///< ends of modules' names; "all-linear": in all blocks
  bool operator==(const Trainable&) const = default;
};
[[nodiscard]] const EnumTexts& texts_of(TargetOptimizer);
[[nodiscard]] const EnumTexts& texts_of(TargetLoss);
/// The training whose memory the recommended configuration must fit besides ours.
struct TargetSpec {
  TargetFramework framework = TargetFramework::huggingface;
  TargetAttention attention = TargetAttention::sdpa;
  TargetOptimizer optimizer = TargetOptimizer::of_config;
  TargetLoss loss = TargetLoss::full;
  bool fp32_logits = true;  ///< the loss is taken in fp32, whatever the model's precision is
  /// The training loop keeps the model's output, logits and all, while backward runs. Nothing: it
  /// does on GPUs.
  std::optional<bool> keeps_output{};
  /// The model is built under deepspeed.zero.Init, as Hugging Face's Trainer has it at stage 3.
  bool zero_init = true;
  /// PYTORCH_CUDA_ALLOC_CONF has expandable_segments:True.
  bool expandable_segments = false;
  /// Page-locked parts of the host's memory: an offloaded optimizer's gradients and copies, at
  /// stages 1 and 2 its master copy, and the second partitions of hpZ.
  bool pins_optimizer = true, pins_master_copy = true, pins_partitions = true;
  /// The release of PyTorch, as 10000 · major + 100 · minor; 0: the newest known.
  int torch = 0;
  std::optional<Trainable> trainable{};  ///< nothing: all parameters
  /// Trains on a GPU: its context, its libraries and its caching allocator count too.
  bool on_gpu = false;
  TargetCheckpointing checkpointing = TargetCheckpointing::torch;
  /// The costs of DeepSpeed's work on this machine are measured first. Nothing: they are if there
  /// is an engine beside the built-in step.
  std::optional<bool> measure{};
};

/// The tuner where nobody says, unless files of experiments are run: all of those are.
inline constexpr std::string_view default_tuner_type = "race";

/// The autotuning section with DeepSpeed's documented defaults.
struct TuningOptions {
  std::string tuner_type;  ///< empty: nobody said
  Metric metric = Metric::throughput;
  bool fast = true;
  /// tuner_early_stopping, tuner_num_trials: where nobody says, gridsearch runs every member.
  std::optional<int> early_stopping;
  std::optional<int> num_trials;
  std::int64_t seed = 0;
  std::string results_dir = "autotuning_results";
  std::string exps_dir = "autotuning_exps";
  bool overwrite = false;
  std::optional<std::int64_t> max_train_batch_size;
  std::int64_t min_train_batch_size = 1;
  std::int64_t max_train_micro_batch_size_per_gpu = 1024;
  std::int64_t min_train_micro_batch_size_per_gpu = 1;
  int num_tuning_micro_batch_sizes = 3;
  std::vector<std::pair<std::string, std::string>> arg_mappings;  ///< key → the script's flag
  MeasureOptions measure;
  const Policy* policy = &default_policy();  ///< of the search
};

}  // namespace dstune
