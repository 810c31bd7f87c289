#pragma once
/// Plans of a toy model, by formulas that a reader can follow in the head.

#include <cstdint>

#include <fmt/format.h>

#include "dstune/report/dry_run.hpp"

namespace dstune::test {

inline constexpr std::int64_t toy_gib = std::int64_t{1} << 30;

/// 2 GiB of parameters and of gradients and 12 GiB of states, divided by ZeRO's stages, and for
/// each sample 4 GiB of activations, 1 GiB with recompute. A device has 40 GiB: up to 36 GiB fits,
/// up to 44 GiB is at the edge.
struct ToyModel {
  std::int64_t device_memory_bytes = 40 * toy_gib;
  bool has_speed = true;
  double recompute_slowdown = 4.0 / 3;
  mutable int num_asked = 0;

  [[nodiscard]] Prediction predict(const Experiment& experiment) const {
    const TrainingConfig& config = experiment.config;
    const double ranks = experiment.shape.size();
    const auto share = [&](int stage) { return config.zero_stage >= stage ? 1 / ranks : 1.0; };
    const bool is_offloaded = is_optimizer_offloaded(config);
    const double offloaded = is_offloaded ? config.offload_ratio : 0;
    const double states = 2 * share(3) + 2 * share(2) + 12 * share(1) * (1 - offloaded);
    const double per_sample = config.recompute == Recompute::block ? 1 : 4;
    const double activations = per_sample * static_cast<double>(config.micro_batch);
    Prediction predicted;
    predicted.target_memory_bytes = static_cast<std::int64_t>((states + activations) * toy_gib);
    predicted.target_memory_shown_bytes = predicted.target_memory_bytes + toy_gib;
    predicted.target_host_memory_bytes =
        static_cast<std::int64_t>(12 * share(1) * offloaded * toy_gib);
    predicted.peak_memory_bytes = predicted.target_memory_bytes / 2;
    judge(activations > states ? "activations" : "optimizer states", std::max(activations, states),
          predicted);
    if (has_speed) {
      const double slowdown = (config.recompute == Recompute::block ? recompute_slowdown : 1) *
                              (config.zero_stage == 3 ? 1.2 : 1) * (is_offloaded ? 2 : 1);
      const double batch = static_cast<double>(config.micro_batch);
      const double speed = ranks * batch / (0.5 + batch) / slowdown;
      predicted.throughput = predicted.target_throughput = speed;
      predicted.throughput_low = 0.8 * speed;
      predicted.throughput_high = 1.25 * speed;
    }
    return predicted;
  }

 private:
  void judge(const char* part, double part_gib, Prediction& predicted) const {
    const auto used = static_cast<double>(predicted.target_memory_bytes);
    const auto limit = static_cast<double>(device_memory_bytes);
    if (device_memory_bytes == 0) return;
    predicted.verdict = used <= 0.9 * limit   ? MemoryVerdict::fits
                        : used <= 1.1 * limit ? MemoryVerdict::edge
                                              : MemoryVerdict::does_not_fit;
    if (predicted.verdict == MemoryVerdict::does_not_fit)
      predicted.because = fmt::format("{} are the largest part ({:.1f} GiB)", part, part_gib);
  }
};

struct ToySpace {
  std::vector<int> stages{3};
  std::vector<std::int64_t> micro_batches{1, 2, 4, 8, 16, 32, 64};
  std::vector<std::int64_t> accumulations{1};
  GroupShape shape{8, 1};
};

/// `model` outlives the plan, which asks it for what is no member.
inline DryRun toy_plan(const ToyModel& model, const ToySpace& space = {}) {
  DryRun plan;
  plan.device_memory_bytes = model.device_memory_bytes;
  plan.deepspeed = "Planned for DeepSpeed 0.19.8 (by --deepspeed-version)";
  plan.deepspeed_version = "0.19.8";
  for (const std::int64_t accumulation : space.accumulations) {
    for (const std::int64_t micro_batch : space.micro_batches) {
      for (const int stage : space.stages) {
        PlannedExperiment planned;
        Experiment& experiment = planned.experiment;
        experiment.name = fmt::format("z{}_gas{}_tmbspg{}", stage, accumulation, micro_batch);
        experiment.shape = space.shape;
        experiment.ds_config = json::Value::object();
        experiment.config.zero_stage = stage;
        experiment.config.micro_batch = micro_batch;
        experiment.config.accumulation_steps = accumulation;
        experiment.config.precision = Precision::bf16;
        planned.predicted = model.predict(experiment);
        if (planned.predicted.verdict == MemoryVerdict::does_not_fit) {
          planned.status = PlanStatus::infeasible;
          planned.reason = planned.predicted.because;
        }
        ++(planned.status == PlanStatus::planned ? plan.planned : plan.infeasible);
        plan.experiments.push_back(std::move(planned));
      }
    }
  }
  plan.total = plan.experiments.size();
  if (model.has_speed) plan.expected_s = 1800;
  plan.what_if = [&model](const Experiment& experiment) -> std::optional<Prediction> {
    ++model.num_asked;
    return model.predict(experiment);
  };
  plan.head = {.model = "LLaMA-7B-like",
               .parameters = 6'738'415'616,
               .layers = 32,
               .is_on_gpus = true,
               .machine = space.shape,
               .device = "NVIDIA A100 PCIe 40GB",
               .device_memory_source = "--device a100-40gb",
               .optimizer = "AdamW of the config"};
  return plan;
}

}  // namespace dstune::test
