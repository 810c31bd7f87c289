#pragma once
/// Times of a machine that nobody here measured, from its published rates (core/devices.hpp).
/// Products count by their operations, all else by its bytes, collectives by latency and bus
/// bandwidth. docs/figures/speed.md compares these times with reports. All functions: Local.

#include <optional>
#include <string>

#include "dstune/core/devices.hpp"
#include "dstune/core/experiment.hpp"
#include "dstune/core/job.hpp"
#include "dstune/model/model_spec.hpp"
#include "dstune/predict/work.hpp"

namespace dstune {

/// Names what times of such groups on this machine want, and the option and key that tell it;
/// empty: nothing is missing.
[[nodiscard]] std::string roofline_lacks(const Cluster& cluster, GroupShape shape);

/// The kernels of the user's training: Hugging Face's modules take many passes over memory where
/// the built-in step takes one.
struct TargetKernels {
  TargetAttention attention = TargetAttention::sdpa;
  TargetLoss loss = TargetLoss::full;
  bool fp32_logits = true;
  bool list_wise_optimizer = false;  ///< PyTorch's, a pass over all tensors for each operation
  bool softmax_in_fp32 = false;      ///< eager attention's
  bool drops_out = false;
  bool caps_scores = false, caps_logits = false;  ///< soft caps, written out in Python
  std::int64_t num_heads = 1;
  /// Gradients, their reductions and the update are of this share of the parameters. So is what is
  /// gathered or copied, except parameters that stage 3 gathers and that are offloaded.
  double trained_share = 1;
  bool gathers_all = false, copies_all = false;
  bool operator==(const TargetKernels&) const = default;
};
[[nodiscard]] TargetKernels target_kernels(const ModelSpec& model, const TrainingConfig& config,
                                           const TargetSpec& target);

/// Bytes of the device's memory that PyTorch's kernels read and write for this work; for products
/// and attention those beside their operations.
[[nodiscard]] double target_bytes(const Work& work, const TargetKernels& kernels);

class Roofline {
 public:
  /// `kernels`: the training's; nothing: the built-in step's. Requires that roofline_lacks()
  /// nothing.
  Roofline(const Cluster& cluster, GroupShape shape, const std::optional<TargetKernels>& kernels);

  /// `on_host`: the host's processors do it.
  [[nodiscard]] double seconds(const Work& work, bool on_host = false) const;
  /// Tells whether ranks of several nodes take part in a collective.
  [[nodiscard]] bool is_between_nodes(const Work& collective) const;

 private:
  /// The work on what trains.
  [[nodiscard]] Work trained_part_of(Work work) const;
  [[nodiscard]] double product_s(const Work& work) const;
  [[nodiscard]] double attention_s(const Work& work) const;
  [[nodiscard]] double collective_s(const Work& work) const;
  [[nodiscard]] double host_s(const Work& work) const;
  /// Operations of a second of large products, at a share of what these reach alone.
  [[nodiscard]] double flops_per_s(DType type, double share) const;

  DeviceSpec device_;
  NodeSpec node_;
  std::optional<NetworkSpec> network_;
  GroupShape shape_;
  std::optional<TargetKernels> kernels_;
  double memory_bytes_per_s_;
  double host_memory_bytes_per_s_;  ///< of a rank
};

}  // namespace dstune
