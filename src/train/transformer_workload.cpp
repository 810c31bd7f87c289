#include "transformer_workload.hpp"

#include <chrono>
#include <string>

#include <fmt/format.h>

#include "dstune/base/log.hpp"
#include "dstune/kernels/cuda.hpp"

namespace dstune::train {
namespace {

std::string scale_exhausted(double loss_scale) {
  return fmt::format(
      "gradients overflow at a loss scale of {:g}, which is fp16.min_loss_scale and can not fall: "
      "DeepSpeed ends the training here",
      loss_scale);
}

}  // namespace

void TransformerWorkload::build() {
  executor_.reset();
  const CpuWorkspaces workspaces(context_.device->kernels());
  plan_ = build_step_plan(*context_.model, *context_.config, context_.group->size(),
                          context_.group->group_rank(), workspaces);
  executor_ = std::make_unique<Executor>(plan_, *context_.device, *context_.group, context_.seed,
                                         Guard::none, *context_.waiter);
  if (executor_->disk_is_buffered()) {
    log::warning(fmt::format(
        "{}: the file system of {} does not take direct transfers: what is offloaded there goes "
        "through the system's cache",
        *context_.experiment_name, plan_.config.disk.folder));
  }
}

StepSample TransformerWorkload::step(std::int64_t step) {
  const auto began = std::chrono::steady_clock::now();
  const StepOutcome outcome = executor_->step(step);
  for (const std::string& refusal : kernels::take_cuda_refusals()) {
    log::warning(fmt::format("{}: {}; kernels without tensor cores do, and times are theirs",
                             *context_.experiment_name, refusal));
  }
  const auto phase_s = [&](Phase phase) {
    return outcome.phase_s[static_cast<std::size_t>(phase)];
  };
  return {.loss = outcome.loss,
          .step_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(),
          .forward_s = phase_s(Phase::forward),
          .backward_s = phase_s(Phase::backward),
          .update_s = phase_s(Phase::update),
          .skipped = outcome.skipped,
          .failure = outcome.scale_exhausted ? scale_exhausted(outcome.loss_scale) : ""};
}

PeakMemory TransformerWorkload::peak_memory() const {
  const Arena::Account& account = context_.device->arena().account();
  const Arena::Account& on_host = context_.device->host_arena().account();
  PeakMemory peak;
  peak.host_bytes = on_host.high_water_bytes;
  peak.total_bytes = account.high_water_bytes + peak.host_bytes;
  for (int category = 0; category < num_categories; ++category) {
    peak.category_bytes[std::string(to_text(static_cast<Category>(category)))] =
        account.categories_at_peak[static_cast<std::size_t>(category)] +
        on_host.categories_at_peak[static_cast<std::size_t>(category)];
  }
  // What earlier, larger experiments left in the arenas is not this one's.
  const auto left_over = [](const Arena& arena, const MemoryPlan& plan) {
    return arena.capacity_bytes() - plan.arena_bytes;
  };
  peak.process_bytes =
      process_resident_bytes() - left_over(context_.device->host_arena(), plan_.host_memory);
  // Memory that a device has of its own is none of the process's.
  if (!context_.device->is_asynchronous())
    peak.process_bytes -= left_over(context_.device->arena(), plan_.memory);
  if (const auto taken_bytes = context_.device->taken_bytes())
    peak.gpu_bytes = *taken_bytes - left_over(context_.device->arena(), plan_.memory);
  peak.graph_bytes = executor_->recording_bytes();
  return peak;
}

double TransformerWorkload::flops_per_step() const {
  const std::int64_t tokens =
      global_batch(plan_.config, plan_.group_size) * plan_.config.sequence_length;
  return flops_per_token(plan_.model, plan_.config.sequence_length) * static_cast<double>(tokens);
}

}  // namespace dstune::train
