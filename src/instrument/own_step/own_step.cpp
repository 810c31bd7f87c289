#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "dstune/base/log.hpp"
#include "dstune/core/log_text.hpp"
#include "dstune/instrument/workloads.hpp"
#include "dstune/kernels/kernels.hpp"
#include "dstune/train/executor.hpp"
#include "instruments.hpp"
#include "own_step/warm_work.hpp"

namespace dstune {
namespace {

std::string scale_exhausted(double loss_scale) {
  return fmt::format(
      "gradients overflow at a loss scale of {:g}, which is fp16.min_loss_scale and can not fall: "
      "DeepSpeed ends the training here",
      loss_scale);
}

/// The training step of a transformer, as planned.
class TransformerWorkload : public Workload {
 public:
  /// `warm`: of the process; null: it has run nothing. It outlives the workload.
  TransformerWorkload(const WorkloadContext& context, WarmWork* warm)
      : context_(context), warm_(warm) {}

  [[nodiscard]] WorkloadTraits traits() const override {
    return {.micro_steps = context_.config->accumulation_steps,
            .has_short_cold_step = true,
            .talks_to_peers = true};
  }

  void build() override {
    executor_.reset();
    const CpuWorkspaces workspaces(context_.device->kernels());
    plan_ = build_step_plan(*context_.model, *context_.config, context_.group->size(),
                            context_.group->group_rank(), workspaces);
    executor_ = std::make_unique<Executor>(plan_, *context_.device, *context_.group, context_.seed,
                                           Guard::none, *context_.waiter);
    const std::string attention_note = context_.device->kernels().fp32_attention_note;
    if (context_.config->precision == Precision::fp32 && !attention_note.empty())
      note({attention_note, true});
    if (executor_->disk_is_buffered()) {
      note({fmt::format("the file system of {} does not take direct transfers: offloaded data go "
                        "through the system's cache there",
                        plan_.config.disk.folder),
            true});
    }
  }

  void initialize() override {
    is_warm_ = warm_ != nullptr && warm_->holds(plan_);
    if (context_.device->is_asynchronous()) {
      // All ranks record in the same step.
      const std::vector<double> all = context_.group->exchange(std::array{is_warm_ ? 1.0 : 0.0});
      is_warm_ = std::ranges::find(all, 0.0) == all.end();
    }
    if (is_warm_) executor_->expect_warm();
    executor_->initialize();
  }

  [[nodiscard]] WarmupNeed warmup_need() const override {
    return {.least = executor_->steps_until_alike(), .is_watched = !is_warm_};
  }
  void note_warm_after(int /*steps*/) override {
    if (warm_ != nullptr) warm_->add(plan_);
  }

  void resume(const Waiter& waiter) override { executor_->resume(waiter); }

  StepSample step(std::int64_t step) override {
    const auto began = std::chrono::steady_clock::now();
    const StepOutcome outcome = executor_->step(step);
    if (const std::string& why_not = executor_->why_not_recorded(); !why_not.empty())
      note({"micro-steps are not launched as CUDA graphs: " + why_not});
    const auto phase_s = [&](Phase phase) {
      return outcome.phase_s[static_cast<std::size_t>(phase)];
    };
    return {
        .loss = outcome.loss,
        .step_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(),
        .forward_s = phase_s(Phase::forward),
        .backward_s = phase_s(Phase::backward),
        .update_s = phase_s(Phase::update),
        .skipped = outcome.skipped,
        .failure = outcome.scale_exhausted ? scale_exhausted(outcome.loss_scale) : ""};
  }

  [[nodiscard]] PeakMemory peak_memory() const override {
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
    // Leftovers of earlier, larger experiments in the arenas are not this one's, and neither are
    // steps that stay built beside it.
    const auto left_over = [](const MemoryBudget& budget, const MemoryPlan& plan) {
      return budget.held_bytes() - plan.arena_bytes;
    };
    const std::int64_t resident = process_resident_bytes();
    peak.process_bytes = resident - left_over(context_.device->host_budget(), plan_.host_memory);
    // Memory that a device has of its own is none of the process's.
    if (!context_.device->is_asynchronous())
      peak.process_bytes -= left_over(context_.device->budget(), plan_.memory);
    // Leftovers that no experiment touched are not resident: the process holds at least this
    // experiment's own peak, and no more than it has.
    const std::int64_t own =
        context_.device->is_asynchronous() ? peak.host_bytes : peak.total_bytes;
    peak.process_bytes = std::min(resident, std::max(peak.process_bytes, own));
    if (const auto taken_bytes = context_.device->taken_bytes())
      peak.gpu_bytes = *taken_bytes - left_over(context_.device->budget(), plan_.memory);
    peak.graph_bytes = executor_->recording_bytes();
    return peak;
  }

  [[nodiscard]] std::vector<Fallback> fallbacks() const override { return fallbacks_; }

  [[nodiscard]] double flops_per_step() const override { return model_flops_per_step(context_); }

 private:
  /// Says it in the log, too, the first time in the process.
  void note(const Fallback& fallback) {
    static std::mutex mutex;
    static std::set<std::string> said;
    if (std::ranges::find(fallbacks_, fallback) != fallbacks_.end()) return;
    fallbacks_.push_back(fallback);
    const std::lock_guard lock(mutex);
    if (said.insert(fallback.text).second)
      log::warning(fmt::format(log_text::of_experiment, *context_.experiment_name, fallback.text));
  }

  WorkloadContext context_;
  WarmWork* warm_;
  bool is_warm_ = false;
  std::vector<Fallback> fallbacks_;
  StepPlan plan_;
  std::unique_ptr<Executor> executor_;
};

class OwnStep : public Instrument {
 public:
  using Instrument::Instrument;

  [[nodiscard]] InstrumentTraits traits() const override {
    return {.name = "step",
            .source = "dstune-mpi's built-in step",
            .runs_plan = true,
            .alike_steps = true};
  }
  [[nodiscard]] Forecasts forecasts(const JobSpec& /*job*/) const override { return {}; }
  [[nodiscard]] std::unique_ptr<Workload> make(const RunContext& context) override {
    return std::make_unique<TransformerWorkload>(context, &warm_);
  }

 private:
  WarmWork warm_;
};

}  // namespace

std::unique_ptr<Workload> make_own_step(const WorkloadContext& context) {
  return std::make_unique<TransformerWorkload>(context, nullptr);
}

namespace instrument {
std::unique_ptr<Instrument> own_step(const WorkloadSpec& spec) {
  return std::make_unique<OwnStep>(spec);
}
}  // namespace instrument

}  // namespace dstune
