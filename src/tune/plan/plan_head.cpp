#include "plan/plan_head.hpp"

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "dstune/base/text.hpp"
#include "dstune/model/parameter_table.hpp"
#include "dstune/space/deepspeed_installation.hpp"

namespace dstune {
namespace {

/// The optimizer and whose it is.
std::string optimizer_text(const JobSpec& job) {
  using enum TargetOptimizer;
  if (!job.target.on_gpu || job.target.framework == TargetFramework::self) return "";
  const std::string torch = job.target.torch > 0 ? torch_text(job.target.torch) : "PyTorch";
  switch (job.target.optimizer) {
    case of_config:
      return "DeepSpeed's, as the config names it";
    case adamw_torch:
      return fmt::format("adamw_torch, AdamW of {} over lists of tensors", torch);
    case adamw_torch_fused:
      return fmt::format("adamw_torch_fused, AdamW of {} in one kernel", torch);
    case adamw_8bit:
      return "adamw_8bit of bitsandbytes";
    case deepspeed_fused_adam:
      return "DeepSpeed's FusedAdam";
    case deepspeed_cpu_adam:
      return "DeepSpeed's CPUAdam";
    case adafactor:
    case lion:
    case sgd:
    case muon:
      return std::string(to_text(job.target.optimizer));
  }
  return "";
}

GroupShape machine_of(const PlannedJob& ready) {
  const JobSpec& job = ready.job;
  // Groups take as many ranks of each node as the smallest one has.
  if (job.machine &&
      std::ranges::adjacent_find(job.machine->ranks_of_node, std::ranges::not_equal_to()) ==
          job.machine->ranks_of_node.end())
    return {job.machine->ranks_of_node.front(),
            static_cast<int>(job.machine->ranks_of_node.size())};
  GroupShape largest{1, 1};
  for (const GroupShape& shape : job.shapes)
    largest = std::max(largest, shape, [](auto& a, auto& b) { return a.size() < b.size(); });
  return largest;
}

std::string machine_source(const PlannedJob& ready, const JobOptions& options) {
  const MachineChoice& choice = ready.job.machine_choice;
  if (!ready.job.cluster) return "this host";
  if (options.hostfile) return "--hostfile " + *options.hostfile;
  if (!choice.gpus_per_node && !choice.num_nodes)
    return "one node, as usual: --gpus-per-node, --nodes";
  const MachineChoice& given = options.overrides.machine;
  return given.gpus_per_node || given.num_nodes ? "" : "dstune.device";
}

}  // namespace

PlanHead plan_head(const PlannedJob& ready, const JobOptions& options, const RankDevice& device) {
  const JobSpec& job = ready.job;
  PlanHead head;
  if (is_planned(job)) {
    head.model = job.model.name;
    head.parameters = parameter_count(job.model);
    head.layers = static_cast<int>(job.model.num_layers);
  }
  head.is_on_gpus = job.target.on_gpu;
  head.machine = machine_of(ready);
  head.machine_source = machine_source(ready, options);
  head.optimizer = optimizer_text(job);
  if (job.device_memory_bytes) head.device_memory_source = "dstune.device_memory";
  if (!job.cluster) {
    head.device = device.description;
    if (!job.device_memory_bytes) head.device_memory_source = "of this host";
    head.host_memory_bytes = ready.host_memory_bytes.value_or(0) * head.machine.num_gpus;
    head.host_memory_source = job.host_memory_bytes ? "dstune.host_memory" : "of this host";
    return head;
  }
  const Cluster& cluster = *job.cluster;
  if (cluster.device) {
    head.device = cluster.device->title.empty() ? cluster.device->name : cluster.device->title;
    if (!job.device_memory_bytes)
      head.device_memory_source = job.machine_choice.profile ? "measured" : "as published";
  }
  if (cluster.network) head.network = cluster.network->title;
  if (ready.host_memory_bytes) {
    head.host_memory_bytes = cluster.host_memory_bytes && !job.host_memory_bytes
                                 ? *cluster.host_memory_bytes
                                 : *ready.host_memory_bytes * head.machine.num_gpus;
    head.host_memory_source = job.host_memory_bytes ? "dstune.host_memory" : "";
  }
  return head;
}

std::vector<PlanSource> plan_sources(const PlannedJob& ready) {
  std::vector<PlanSource> sources;
  const auto add = [&](const std::string& whose, const FigureSources& figures) {
    for (const auto& [figure, key] : figures) {
      const auto found = device_sources().find(key);
      sources.push_back({fmt::format("{}: {}", whose, figure),
                         found == device_sources().end() ? key : found->second});
    }
  };
  const JobSpec& job = ready.job;
  if (!job.cluster) return sources;
  if (job.machine_choice.profile)
    sources.push_back({"times", "measured: " + *job.machine_choice.profile});
  if (job.cluster->device) add(job.cluster->device->name, job.cluster->device->sources);
  if (job.cluster->node) add(job.cluster->node->name, job.cluster->node->sources);
  if (job.cluster->network) add(job.cluster->network->name, job.cluster->network->sources);
  return sources;
}

}  // namespace dstune
