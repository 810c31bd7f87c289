#include "workloads.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <string>
#include <thread>

#include <fmt/format.h>

#include "agreement.hpp"
#include "dstune/base/log.hpp"
#include "dstune/device/device.hpp"
#include "dstune/kernels/cuda.hpp"
#include "dstune/model/parameter_table.hpp"

namespace dstune::train {
namespace {

/// The clock's resolution. A step of no time at all would have no throughput.
constexpr double shortest_given_step_s = 1e-9;
constexpr double max_sleep_s = 0.02;

double model_flops_per_step(const WorkloadContext& context) {
  const std::int64_t tokens =
      global_batch(*context.config, context.group->size()) * context.config->sequence_length;
  return flops_per_token(*context.model, context.config->sequence_length) *
         static_cast<double>(tokens);
}

std::string scale_exhausted(double loss_scale) {
  return fmt::format(
      "gradients overflow at a loss scale of {:g}, which is fp16.min_loss_scale and can not fall: "
      "DeepSpeed ends the training here",
      loss_scale);
}

}  // namespace

SimulatedTimes::SimulatedTimes(const WorkloadContext& context, double time_scale)
    : flops_per_step_(model_flops_per_step(context)),
      time_scale_(time_scale),
      waiter_(context.waiter) {}

StepSample SimulatedTimes::step(std::int64_t step) {
  const double step_s = step_times_s_[static_cast<std::size_t>(step) % step_times_s_.size()];
  // The time said is the time reported: what the clock adds is not the experiment's.
  wait(step_s * time_scale_);
  return {.loss = std::numeric_limits<double>::quiet_NaN(),
          .step_s = std::max(step_s, shortest_given_step_s)};
}

void SimulatedTimes::wait(double wait_s) const {
  using Seconds = std::chrono::duration<double>;
  if (wait_s <= 0) return;
  const auto begin = Waiter::Clock::now();
  const auto left_s = [&] { return wait_s - Seconds(Waiter::Clock::now() - begin).count(); };
  // Long naps: whoever waits here takes nothing from those who measure, and yet hears an ABORT.
  const auto sleep_briefly = [&] {
    std::this_thread::sleep_for(Seconds(std::clamp(left_s(), 0.0, max_sleep_s)));
    return left_s() <= 0;
  };
  waiter_->until(sleep_briefly, "a step of given length");
}

SyntheticWorkload::SyntheticWorkload(const WorkloadContext& context)
    : SimulatedTimes(context, 1.0) {
  step_times_s_ = {context.spec->step_time_s};
}

PeakMemory SyntheticWorkload::peak_memory() const {
  return {.category_bytes = {}, .process_bytes = process_resident_bytes()};
}

ReplayWorkload::ReplayWorkload(const WorkloadContext& context)
    : SimulatedTimes(context, context.spec->time_scale),
      spec_(*context.spec),
      name_(*context.experiment_name) {}

void ReplayWorkload::build() {
  const auto row = spec_.table.find(name_);
  if (row == spec_.table.end())
    throw Error("the replay table " + spec_.table_path + " has no experiment " + name_);
  const json::Document document = json::Document::parse(row->dump(), spec_.table_path);
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
    throw Error("the replay table " + spec_.table_path + ", /" + name_ + first.pointer + ": " +
                first.message);
  }
  if (status == Status::ok) return;
  const auto reason = node.find("reason");
  throw RecordedStatus(status, reason && reason->is_string()
                                   ? reason->value().get<std::string>()
                                   : "recorded as " + std::string(to_text(status)));
}

PeakMemory ReplayWorkload::peak_memory() const {
  return {.total_bytes = peak_memory_bytes_,
          .category_bytes = {},
          .process_bytes = process_resident_bytes()};
}

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

namespace dstune {

std::unique_ptr<Workload> make_workload(const WorkloadContext& context) {
  switch (context.spec->kind) {
    case WorkloadKind::transformer:
      return std::make_unique<train::TransformerWorkload>(context);
    case WorkloadKind::synthetic:
      return std::make_unique<train::SyntheticWorkload>(context);
    case WorkloadKind::replay:
      return std::make_unique<train::ReplayWorkload>(context);
    case WorkloadKind::plugin:
      return std::make_unique<train::PluginWorkload>(context);
  }
  throw LogicError("a workload is of a known kind");
}

}  // namespace dstune
