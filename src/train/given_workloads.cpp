#include "given_workloads.hpp"

#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>

#include "dstune/device/device.hpp"
#include "dstune/model/parameter_table.hpp"

namespace dstune::train {
namespace {

/// The clock's resolution. A step of no time at all would have no throughput.
constexpr double shortest_given_step_s = 1e-9;
constexpr double longest_nap_s = 0.02;

double model_flops_per_step(const WorkloadContext& context) {
  const std::int64_t tokens =
      global_batch(*context.config, context.group->size()) * context.config->sequence_length;
  return flops_per_token(*context.model, context.config->sequence_length) *
         static_cast<double>(tokens);
}

}  // namespace

GivenTimes::GivenTimes(const WorkloadContext& context, double time_scale)
    : flops_per_step_(model_flops_per_step(context)),
      time_scale_(time_scale),
      waiter_(context.waiter) {}

StepSample GivenTimes::step(std::int64_t step) {
  const double step_s = step_times_s_[static_cast<std::size_t>(step) % step_times_s_.size()];
  // The time said is the time reported: what the clock adds is not the experiment's.
  wait(step_s * time_scale_);
  return {.loss = std::numeric_limits<double>::quiet_NaN(),
          .step_s = std::max(step_s, shortest_given_step_s)};
}

void GivenTimes::wait(double wait_s) const {
  using Seconds = std::chrono::duration<double>;
  if (wait_s <= 0) return;
  const auto begin = Waiter::Clock::now();
  const auto left_s = [&] { return wait_s - Seconds(Waiter::Clock::now() - begin).count(); };
  // Long naps: whoever waits here takes nothing from those who measure, and yet hears an ABORT.
  const auto nap = [&] {
    std::this_thread::sleep_for(Seconds(std::clamp(left_s(), 0.0, longest_nap_s)));
    return left_s() <= 0;
  };
  waiter_->until(nap, "a step of given length");
}

SyntheticWorkload::SyntheticWorkload(const WorkloadContext& context) : GivenTimes(context, 1.0) {
  step_times_s_ = {context.spec->step_time_s};
}

PeakMemory SyntheticWorkload::peak_memory() const {
  return {.category_bytes = {}, .process_bytes = process_resident_bytes()};
}

ReplayWorkload::ReplayWorkload(const WorkloadContext& context)
    : GivenTimes(context, context.spec->time_scale),
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

}  // namespace dstune::train
