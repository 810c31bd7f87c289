#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dstune/train/agreement.hpp"
#include "dstune/train/workload.hpp"
#include "stopping.hpp"

namespace dstune {
namespace {

using train::Failure;

constexpr std::chrono::seconds joules_interval{1};
constexpr std::chrono::seconds gpu_interval{1};

/// A struct of doubles from every rank of the group. Collective over the group.
template <class Numbers>
std::vector<Numbers> exchange(ProcessGroup& group, const Numbers& mine) {
  const auto plain = std::bit_cast<std::array<double, sizeof(Numbers) / sizeof(double)>>(mine);
  const std::vector<double> all = group.exchange(plain);
  std::vector<Numbers> result(static_cast<std::size_t>(group.size()));
  std::memcpy(static_cast<void*>(result.data()), all.data(), all.size() * sizeof(double));
  return result;
}

/// States of this rank's GPU while steps are timed. 0: nobody told.
struct GpuSamples {
  double num_samples = 0;
  double sm_clock_mhz = 0;  ///< the lowest, of the others the highest
  double max_sm_clock_mhz = 0;
  double temperature_c = 0;
  double power_w = 0;
  double reasons = 0;  ///< few bits, which a double has all of

  void add(const GpuState& state) {
    const double clock_mhz = state.sm_clock_mhz.value_or(0);
    if (clock_mhz > 0 && (sm_clock_mhz == 0 || clock_mhz < sm_clock_mhz)) sm_clock_mhz = clock_mhz;
    max_sm_clock_mhz = std::max<double>(max_sm_clock_mhz, state.max_sm_clock_mhz.value_or(0));
    temperature_c = std::max<double>(temperature_c, state.temperature_c.value_or(0));
    power_w = std::max<double>(power_w, state.power_w.value_or(0));
    reasons = static_cast<double>(static_cast<std::uint64_t>(reasons) | state.throttle_reasons);
    ++num_samples;
  }
};

/// The worst condition of the GPUs of all ranks; nothing if no rank saw any.
std::optional<GpuCondition> condition_of(const std::vector<GpuSamples>& all) {
  GpuCondition worst;
  std::uint64_t reasons = 0;
  bool has_seen = false;
  for (const GpuSamples& one : all) {
    if (one.num_samples == 0) continue;
    has_seen = true;
    if (one.sm_clock_mhz > 0 &&
        (worst.sm_clock_mhz == 0 || one.sm_clock_mhz < worst.sm_clock_mhz)) {
      worst.sm_clock_mhz = one.sm_clock_mhz;
      worst.max_sm_clock_mhz = one.max_sm_clock_mhz;
    }
    worst.temperature_c = std::max(worst.temperature_c, one.temperature_c);
    worst.power_w = std::max(worst.power_w, one.power_w);
    reasons |= static_cast<std::uint64_t>(one.reasons);
  }
  if (!has_seen) return std::nullopt;
  worst.throttled_by = throttle_text(reasons);
  return worst;
}

/// The numbers that a step's agreement carries from each rank.
struct StepNumbers {
  double status, reason_bytes;  ///< train::FailureCode
  double stop, skipped;         ///< 1: yes
  double step_s, forward_s, backward_s, update_s;
};

/// One measurement on its way, the same on every rank but for overhead_s.
class Run {
 public:
  Run(Workload& workload, ProcessGroup& group, const MeasureOptions& options,
      const MeasureHooks& hooks)
      : workload_(workload),
        group_(group),
        hooks_(hooks),
        traits_(workload.traits()),
        warmup_rule_(options, traits_.has_simulated_times, traits_.min_warmup_steps),
        timing_rule_(options) {
    result_.world_ranks = group.world_ranks();
  }

  Measurement measure() {
    result_.status = Status::ok;
    if (!build()) return std::move(result_);
    if (hooks_.ready) hooks_.ready();
    if (!take_steps()) return std::move(result_);
    finish();
    return std::move(result_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  bool build() {
    const Failure mine = timed("build", [&] { workload_.build(); });
    leave_if_device_lost(mine);
    return passed(train::agree(group_, mine));
  }

  bool take_steps() {
    Failure mine = timed("initialize", [&] { together([&] { workload_.initialize(); }); });
    begin_timing_where(warmup_rule_.is_over({}));
    std::vector<double> warmup_s;
    std::vector<double> timed_s;
    bool is_over = false;
    for (std::int64_t step = 0;; ++step) {
      StepSample sample;
      if (!mine) {
        mine = train::attempt([&] { together([&] { sample = workload_.step(step); }); });
        if (!mine) mine = failure_of(sample);
      }
      leave_if_device_lost(mine);
      if (!agree_on_step(mine, sample)) return false;
      if (!is_warm_) {
        ++result_.warmup_steps;
        if (skipped_in_a_row_ == 0) warmup_s.push_back(result_.step_times_s.back());
        begin_timing_where(warmup_rule_.is_over(warmup_s));
      } else if (skipped_in_a_row_ == 0) {
        timed_s.push_back(result_.step_times_s.back());
        if (!is_over) is_over = decide(timed_s) != train::StoppingDecision::go_on;
      }
      if (stopped_ && !is_over) {
        result_.status = Status::raced_out;
        result_.reason = "stopped after " + std::to_string(step + 1) + " steps";
        is_over = true;
      }
      if (is_over && workload_.steps_at_hand() == 0) return true;
    }
  }

  void begin_timing_where(bool is_warm) {
    is_warm_ = is_warm;
    if (!is_warm) return;
    joules_at_begin_ = joules();
    sample_gpu();
  }

  void sample_gpu() {
    if (!hooks_.sample_gpu) return;
    looked_at_gpu_at_ = Clock::now();
    if (const auto state = hooks_.sample_gpu()) gpu_samples_.add(*state);
  }

  /// None on a rank that does not count them, not a number where it can not.
  double joules() {
    if (!hooks_.joules) return 0;
    asked_for_joules_at_ = Clock::now();
    return hooks_.joules().value_or(std::numeric_limits<double>::quiet_NaN());
  }

  /// The group's verdict after a timed step.
  train::StoppingDecision decide(const std::vector<double>& timed_s) {
    IncumbentEstimate incumbent;
    if (hooks_.incumbent && group_.group_rank() == 0 && is_race_look(timed_s.size()))
      incumbent = hooks_.incumbent();
    const train::StoppingDecision mine = timing_rule_.decide(timed_s, incumbent);
    if (!timing_rule_.has_looked()) return mine;
    const std::array<double, 1> numbers{static_cast<double>(mine)};
    const std::vector<double> all = group_.exchange(numbers);
    const auto verdict = static_cast<train::StoppingDecision>(static_cast<int>(all[0]));
    if (verdict == train::StoppingDecision::lost) {
      result_.status = Status::raced_out;
      result_.reason = fmt::format("stopped after {} steps: clearly slower than the best so far",
                                   timed_s.size());
    }
    return verdict;
  }

  /// The failure that ends the training though nothing went wrong on this rank alone.
  [[nodiscard]] Failure failure_of(const StepSample& sample) const {
    if (!sample.failure.empty()) return {Status::failed, sample.failure};
    if (!sample.skipped || skipped_in_a_row_ + 1 < default_policy().measuring.max_skipped_in_a_row)
      return {};
    return {Status::failed, "gradients overflowed in " +
                                std::to_string(default_policy().measuring.max_skipped_in_a_row) +
                                " steps in a row (fp16), so that none made its update"};
  }

  /// Puts the slowest rank's times, the loss and the leader's wish to stop into the result.
  bool agree_on_step(const Failure& mine, const StepSample& sample) {
    report_last_step();
    const auto [status, reason_bytes] = train::failure_code(mine);
    const std::vector<StepNumbers> all =
        exchange(group_, StepNumbers{.status = status,
                                     .reason_bytes = reason_bytes,
                                     .stop = stop_wanted_ ? 1.0 : 0.0,
                                     .skipped = sample.skipped ? 1.0 : 0.0,
                                     .step_s = sample.step_s,
                                     .forward_s = sample.forward_s,
                                     .backward_s = sample.backward_s,
                                     .update_s = sample.update_s});
    const auto failed = std::ranges::find_if(all, [](const StepNumbers& rank) {
      return rank.status != static_cast<double>(Status::ok);
    });
    if (failed != all.end()) {
      return passed(train::share_failure(group_, static_cast<int>(failed - all.begin()),
                                         {failed->status, failed->reason_bytes}, mine));
    }
    const StepNumbers& slowest = *std::ranges::max_element(all, {}, &StepNumbers::step_s);
    stopped_ = all.front().stop != 0;
    skipped_in_a_row_ = all.front().skipped != 0 ? skipped_in_a_row_ + 1 : 0;
    if (skipped_in_a_row_ > 0)
      result_.skipped_steps.push_back(static_cast<std::int64_t>(result_.step_times_s.size()));
    result_.step_times_s.push_back(slowest.step_s);
    phases_.push_back({slowest.forward_s, slowest.backward_s, slowest.update_s});
    if (is_warm_ && skipped_in_a_row_ == 0) {
      result_.rank_forward_s.resize(all.size());
      for (std::size_t rank = 0; rank < all.size(); ++rank)
        result_.rank_forward_s[rank] += all[rank].forward_s;
    }
    // A workload without a loss has none from its first step on.
    if (!result_.losses.empty() || !std::isnan(sample.loss)) result_.losses.push_back(sample.loss);
    return true;
  }

  /// Not right after the step: the leader would be late for the next one, and its peers' clocks
  /// would run while they wait for it.
  void report_last_step() {
    // A counter's new beginning would pass unnoticed.
    if (is_warm_ && hooks_.joules && Clock::now() - asked_for_joules_at_ > joules_interval)
      joules();
    if (is_warm_ && hooks_.sample_gpu && Clock::now() - looked_at_gpu_at_ > gpu_interval)
      sample_gpu();
    if (!hooks_.stepped || group_.group_rank() != 0 || result_.step_times_s.empty()) return;
    stop_wanted_ = hooks_.stepped(result_.step_times_s.back()) || stop_wanted_;
  }

  void finish() {
    sample_gpu();
    const double joules_used = joules() - joules_at_begin_;
    const Clock::time_point began = Clock::now();
    report_last_step();
    average_phases();
    result_.flops_per_step = workload_.flops_per_step();
    exchange_totals(workload_.peak_memory(), joules_used);
    if (hooks_.sample_gpu) result_.gpu = condition_of(exchange(group_, gpu_samples_));
    share_fallbacks();
    add_overhead("teardown", began);
  }

  /// A fallback on one rank holds up all of them.
  void share_fallbacks() {
    constexpr char comparable = '=', other = '!';
    std::vector<std::string> mine;
    for (const Fallback& fallback : workload_.fallbacks())
      mine.push_back((fallback.is_comparable ? comparable : other) + fallback.text);
    std::vector<std::string> reasons;
    for (const std::string& line : train::share_lines(group_, mine)) {
      result_.fallbacks.push_back(line.substr(1));
      if (line.front() == other) reasons.push_back(result_.fallbacks.back());
    }
    constexpr std::size_t most = 2;
    const std::size_t more = reasons.size() > most ? reasons.size() - most : 0;
    reasons.resize(reasons.size() - more);
    result_.not_comparable = fmt::format("{}", fmt::join(reasons, "; "));
    if (more > 0) result_.not_comparable += fmt::format("; and {} more", more);
  }

  /// Averages the phases of one micro-step and one update over the timed steps.
  void average_phases() {
    std::array<double, 3> sum{};
    double steps = 0;
    for (auto step = static_cast<std::size_t>(result_.warmup_steps); step < phases_.size();
         ++step) {
      if (std::binary_search(result_.skipped_steps.begin(), result_.skipped_steps.end(),
                             static_cast<std::int64_t>(step)))
        continue;
      for (std::size_t phase = 0; phase < sum.size(); ++phase) sum[phase] += phases_[step][phase];
      ++steps;
    }
    if (steps == 0) return;
    const double micro_steps = steps * static_cast<double>(traits_.micro_steps);
    for (double& rank_s : result_.rank_forward_s) rank_s /= micro_steps;
    result_.forward_s = sum[0] / micro_steps;
    result_.backward_s = sum[1] / micro_steps;
    result_.update_s = sum[2] / steps;
  }

  /// The memory is that of the rank that holds most in its arena; processes are looked at on their
  /// own. The energy is that of all nodes.
  void exchange_totals(PeakMemory mine, double joules_used) {
    std::vector<double> numbers{
        static_cast<double>(mine.process_bytes), static_cast<double>(mine.total_bytes),
        static_cast<double>(mine.host_bytes),    joules_used,
        static_cast<double>(mine.gpu_bytes),     static_cast<double>(mine.graph_bytes)};
    // Every rank has the same categories: they are the workload's.
    for (const auto& [name, bytes] : mine.category_bytes)
      numbers.push_back(static_cast<double>(bytes));
    const std::vector<double> all = group_.exchange(numbers);
    const auto of = [&](int rank) {
      return std::span(all).subspan(static_cast<std::size_t>(rank) * numbers.size());
    };
    int fullest_rank = 0;
    double joules_of_all = 0;
    for (int rank = 0; rank < group_.size(); ++rank) {
      joules_of_all += of(rank)[3];
      mine.process_bytes = std::max(mine.process_bytes, static_cast<std::int64_t>(of(rank)[0]));
      mine.gpu_bytes = std::max(mine.gpu_bytes, static_cast<std::int64_t>(of(rank)[4]));
      mine.graph_bytes = std::max(mine.graph_bytes, static_cast<std::int64_t>(of(rank)[5]));
      if (of(rank)[1] > of(fullest_rank)[1]) fullest_rank = rank;
    }
    mine.total_bytes = static_cast<std::int64_t>(of(fullest_rank)[1]);
    mine.host_bytes = static_cast<std::int64_t>(of(fullest_rank)[2]);
    std::size_t at = 6;
    for (auto& [name, bytes] : mine.category_bytes)
      bytes = static_cast<std::int64_t>(of(fullest_rank)[at++]);
    result_.peak_memory = std::move(mine);
    if (joules_of_all > 0) result_.energy_j = joules_of_all;
  }

  /// Work that peers take part in: what it throws here leaves them inside a collective, so there
  /// is nobody to agree with.
  template <class Work>
  void together(Work&& work) {
    if (!traits_.talks_to_peers || group_.size() == 1) return work();
    const Failure failure = train::attempt(work);
    if (failure) throw StepFailure(failure.status, failure.reason);
  }

  void leave_if_device_lost(const Failure& failure) const {
    if (failure && hooks_.has_lost_device && hooks_.has_lost_device())
      throw StepFailure(failure.status, failure.reason);
  }

  template <class Work>
  Failure timed(const char* phase, Work&& work) {
    const Clock::time_point began = Clock::now();
    Failure failure = train::attempt(work);
    add_overhead(phase, began);
    return failure;
  }

  void add_overhead(const char* phase, Clock::time_point began) {
    result_.overhead_s[phase] = std::chrono::duration<double>(Clock::now() - began).count();
  }

  bool passed(Failure agreed) {
    result_.status = agreed.status;
    result_.reason = std::move(agreed.reason);
    return agreed.status == Status::ok;
  }

  Workload& workload_;
  ProcessGroup& group_;
  const MeasureHooks& hooks_;
  WorkloadTraits traits_;
  train::WarmupRule warmup_rule_;
  train::TimingRule timing_rule_;
  Measurement result_;
  std::vector<std::array<double, 3>> phases_;  ///< forward, backward, update of every step
  bool is_warm_ = false;
  double joules_at_begin_ = 0;  ///< of the timed steps
  Clock::time_point asked_for_joules_at_;
  GpuSamples gpu_samples_;
  Clock::time_point looked_at_gpu_at_;
  int skipped_in_a_row_ = 0;  ///< up to the last step
  bool stop_wanted_ = false;  ///< leader: what the hook has said
  bool stopped_ = false;      ///< the group: what the last agreement said
};

}  // namespace

Measurement measure(Workload& workload, ProcessGroup& group, const MeasureOptions& options,
                    const MeasureHooks& hooks) {
  return Run(workload, group, options, hooks).measure();
}

}  // namespace dstune
