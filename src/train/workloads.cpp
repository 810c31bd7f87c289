#include <algorithm>
#include <chrono>
#include <limits>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "agreement.hpp"
#include "dstune/base/log.hpp"
#include "dstune/kernels/cuda.hpp"
#include "dstune/model/parameter_table.hpp"
#include "dstune/train/executor.hpp"
#include "dstune/train/workload.hpp"
#include "plugin/plugin_group.hpp"

namespace dstune {
namespace {

constexpr double max_sleep_s = 0.02;

std::string scale_exhausted(double loss_scale) {
  return fmt::format(
      "gradients overflow at a loss scale of {:g}, which is fp16.min_loss_scale and can not fall: "
      "DeepSpeed ends the training here",
      loss_scale);
}

/// The training step of a transformer, as planned.
class TransformerWorkload : public Workload {
 public:
  explicit TransformerWorkload(const WorkloadContext& context) : context_(context) {}

  [[nodiscard]] WorkloadTraits traits() const override {
    return {.micro_steps = context_.config->accumulation_steps,
            .min_warmup_steps = steps_until_alike(*context_.device),
            .talks_to_peers = true};
  }

  void build() override {
    executor_.reset();
    // Fallbacks of earlier experiments are not this one's.
    kernels::take_cuda_refusals();
    const CpuWorkspaces workspaces(context_.device->kernels());
    plan_ = build_step_plan(*context_.model, *context_.config, context_.group->size(),
                            context_.group->group_rank(), workspaces);
    executor_ = std::make_unique<Executor>(plan_, *context_.device, *context_.group, context_.seed,
                                           Guard::none, *context_.waiter);
    if (executor_->disk_is_buffered()) {
      note({fmt::format("the file system of {} does not take direct transfers: what is offloaded "
                        "there goes through the system's cache",
                        plan_.config.disk.folder),
            true});
    }
  }

  void initialize() override { executor_->initialize(); }

  StepSample step(std::int64_t step) override {
    const auto began = std::chrono::steady_clock::now();
    const StepOutcome outcome = executor_->step(step);
    for (const std::string& refusal : kernels::take_cuda_refusals())
      note({refusal + "; kernels without tensor cores serve"});
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
      log::warning(fmt::format("{}: {}", *context_.experiment_name, fallback.text));
  }

  WorkloadContext context_;
  std::vector<Fallback> fallbacks_;
  StepPlan plan_;
  std::unique_ptr<Executor> executor_;
};

/// Without training: a series of step times, the given one or those of an experiment in a recorded
/// table, that starts anew when it is exhausted.
class SimulatedWorkload : public Workload {
 public:
  explicit SimulatedWorkload(const WorkloadContext& context) : context_(context) {}

  [[nodiscard]] WorkloadTraits traits() const override { return {.has_simulated_times = true}; }

  /// Throws RecordedStatus, and Error for a name or a row that is not as it should be.
  void build() override {
    if (is_replay()) {
      read_row();
    } else {
      step_times_s_ = {context_.spec->step_time_s};
    }
  }

  void initialize() override {}

  StepSample step(std::int64_t step) override {
    const double step_s = step_times_s_[static_cast<std::size_t>(step) % step_times_s_.size()];
    // The time said is the time reported: what the clock adds is not the experiment's.
    wait(is_replay() ? step_s * context_.spec->time_scale : step_s);
    return {.loss = std::numeric_limits<double>::quiet_NaN(),
            .step_s = std::max(step_s, min_step_s)};
  }

  [[nodiscard]] PeakMemory peak_memory() const override {
    return {.total_bytes = peak_memory_bytes_,
            .category_bytes = {},
            .process_bytes = process_resident_bytes()};
  }

  [[nodiscard]] double flops_per_step() const override { return model_flops_per_step(context_); }

 private:
  [[nodiscard]] bool is_replay() const { return context_.spec->kind == WorkloadKind::replay; }

  void read_row() {
    const WorkloadSpec& spec = *context_.spec;
    const std::string& name = *context_.experiment_name;
    const auto row = spec.table.find(name);
    if (row == spec.table.end())
      throw Error("the replay table " + spec.table_path + " has no experiment " + name);
    const json::Document document = json::Document::parse(row->dump(), spec.table_path);
    const json::Node node = document.node();
    json::Problems problems;
    node.refuse_unknown_keys(
        problems, {"step_time_s", "step_times_s", "peak_memory_bytes", "status", "reason"});
    if (const auto bytes = node.find("peak_memory_bytes"))
      peak_memory_bytes_ = bytes->integer(problems, 0).value_or(0);
    if (const auto time = node.find("step_time_s"))
      step_times_s_.push_back(time->number(problems, 0).value_or(0));
    if (const auto times = node.find("step_times_s")) {
      step_times_s_.clear();
      for (const json::Node& time : times->elements())
        step_times_s_.push_back(time.number(problems, 0).value_or(0));
    }
    Status status = Status::ok;
    if (const auto word = node.find("status")) {
      const auto known = from_text<Status>(word->string(problems).value_or(""));
      if (!known) problems.add(word->problem("is not a status of an experiment"));
      status = known.value_or(Status::failed);
    }
    if (status == Status::ok && step_times_s_.empty())
      problems.add(node.problem("has neither step_time_s nor step_times_s"));
    if (!problems.empty()) {
      const Problem& first = problems.all().front();
      throw Error("the replay table " + spec.table_path + ", /" + name + first.pointer + ": " +
                  first.message);
    }
    if (status == Status::ok) return;
    const auto reason = node.find("reason");
    throw train::RecordedStatus(status, reason && reason->is_string()
                                            ? reason->value().get<std::string>()
                                            : "recorded as " + std::string(to_text(status)));
  }

  void wait(double wait_s) const {
    using Seconds = std::chrono::duration<double>;
    if (wait_s <= 0) return;
    const auto begin = Waiter::Clock::now();
    const auto left_s = [&] { return wait_s - Seconds(Waiter::Clock::now() - begin).count(); };
    // Long naps: whoever waits here takes nothing from those who measure, and yet hears an ABORT.
    const auto sleep_briefly = [&] {
      std::this_thread::sleep_for(Seconds(std::clamp(left_s(), 0.0, max_sleep_s)));
      return left_s() <= 0;
    };
    context_.waiter->until(sleep_briefly, "a step of given length");
  }

  WorkloadContext context_;
  std::vector<double> step_times_s_;
  std::int64_t peak_memory_bytes_ = 0;
};

}  // namespace

double tokens_per_step(const WorkloadContext& context) {
  return static_cast<double>(global_batch(*context.config, context.group->size()) *
                             context.config->sequence_length);
}

double model_flops_per_step(const WorkloadContext& context) {
  return flops_per_token(*context.model, context.config->sequence_length) *
         tokens_per_step(context);
}

std::unique_ptr<Workload> make_workload(const WorkloadContext& context) {
  switch (context.spec->kind) {
    case WorkloadKind::transformer:
      return std::make_unique<TransformerWorkload>(context);
    case WorkloadKind::synthetic:
    case WorkloadKind::replay:
      return std::make_unique<SimulatedWorkload>(context);
    case WorkloadKind::plugin:
      return train::make_plugin_workload(context);
    case WorkloadKind::deepspeed:
      break;
  }
  throw LogicError("a workload is of a kind that is made here");
}

}  // namespace dstune
