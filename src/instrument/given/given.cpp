#include <algorithm>
#include <chrono>
#include <limits>
#include <thread>
#include <vector>

#include "dstune/instrument/workloads.hpp"
#include "dstune/train/agreement.hpp"
#include "instruments.hpp"
#include "limits.hpp"

namespace dstune {
namespace {

constexpr double max_sleep_s = 0.02;

/// Without training: a series of step times, the given one or those of an experiment in a recorded
/// table, that starts anew when it is exhausted.
class SimulatedWorkload : public Workload {
 public:
  SimulatedWorkload(const WorkloadSpec& spec, const WorkloadContext& context)
      : spec_(spec), context_(context) {}

  [[nodiscard]] WorkloadTraits traits() const override { return {.has_simulated_times = true}; }

  /// Throws RecordedStatus, and Error for a name or a row that is not as it should be.
  void build() override {
    if (is_replay()) {
      read_row();
    } else {
      step_times_s_ = {spec_.step_time_s};
    }
  }

  void initialize() override {}

  StepSample step(std::int64_t step) override {
    const double step_s = step_times_s_[static_cast<std::size_t>(step) % step_times_s_.size()];
    // The time said is the time reported: what the clock adds is not the experiment's.
    wait(is_replay() ? step_s * spec_.time_scale : step_s);
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
  [[nodiscard]] bool is_replay() const { return spec_.kind == WorkloadKind::replay; }

  void read_row() {
    const std::string& name = *context_.experiment_name;
    const auto row = spec_.table.find(name);
    if (row == spec_.table.end())
      throw Error("the replay table " + spec_.table_path + " has no experiment " + name);
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
      throw Error("the replay table " + spec_.table_path + ", /" + name + first.pointer + ": " +
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

  const WorkloadSpec& spec_;
  WorkloadContext context_;
  std::vector<double> step_times_s_;
  std::int64_t peak_memory_bytes_ = 0;
};

/// Times that are given: by the document, or by a recorded table.
class Given : public Instrument {
 public:
  using Instrument::Instrument;

  [[nodiscard]] InstrumentTraits traits() const override {
    const bool is_replay = spec_.kind == WorkloadKind::replay;
    return {.name = to_text(spec_.kind),
            .source = is_replay ? "the recorded table" : "simulated steps",
            .repeats = false};
  }
  [[nodiscard]] Forecasts forecasts(const JobSpec& /*job*/) const override {
    return {.judges_here = false,
            .judges_target = false,
            .only_runs_tell = spec_.kind == WorkloadKind::replay};
  }
  [[nodiscard]] RunLimits limits(const RunForecast& forecast) const override {
    RunLimits limits = Instrument::limits(forecast);
    if (spec_.kind == WorkloadKind::synthetic)
      limits.inactivity_timeout_s = default_policy().timeouts.min_inactivity_timeout_s +
                                    default_policy().timeouts.steps_of_silence * spec_.step_time_s;
    return limits;
  }
  [[nodiscard]] std::unique_ptr<Workload> make(const RunContext& context) override {
    return make_given_steps(spec_, context);
  }
};

}  // namespace

std::unique_ptr<Workload> make_given_steps(const WorkloadSpec& spec,
                                           const WorkloadContext& context) {
  return std::make_unique<SimulatedWorkload>(spec, context);
}

namespace instrument {
std::unique_ptr<Instrument> given(const WorkloadSpec& spec) {
  return std::make_unique<Given>(spec);
}
}  // namespace instrument

}  // namespace dstune
