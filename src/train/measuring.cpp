#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dstune/train/agreement.hpp"
#include "dstune/train/workload.hpp"
#include "group_totals.hpp"
#include "stopping.hpp"

namespace dstune {
namespace {

using train::exchange;
using train::Failure;
using train::GpuSamples;
using train::StoppingDecision;

constexpr std::chrono::seconds joules_interval{1};
constexpr std::chrono::seconds gpu_interval{1};

/// The numbers that a step's agreement carries from each rank.
struct StepNumbers {
  double status, reason_bytes;  ///< train::FailureCode
  double stop, skipped;         ///< 1: yes
  double step_s, forward_s, backward_s, update_s;
};

std::string stopped_after(std::size_t steps) {
  return fmt::format("stopped after {} step{}", steps, steps == 1 ? "" : "s");
}
std::string lost_after(std::size_t steps) {
  return stopped_after(steps) + ": clearly slower than the best so far";
}

}  // namespace

/// Everything in it is the same on every rank but overhead_s.
class MeasuredRun::State {
 public:
  State(Workload& workload, ProcessGroup& group, const MeasureOptions& options,
        const MeasureHooks& hooks, const KeptRun& kept)
      : workload_(workload),
        group_(group),
        options_(options),
        hooks_(hooks),
        kept_(kept),
        traits_(workload.traits()),
        timing_rule_(options, traits_) {
    result_.world_ranks = group.world_ranks();
    result_.status = Status::ok;
  }

  bool build() {
    if (is_kept()) return true;
    const Failure mine = timed("build", [&] { workload_.build(); });
    leave_if_device_lost(mine);
    return passed(train::agree(group_, mine));
  }

  void begin() {
    if (hooks_.ready) hooks_.ready();
    if (!is_kept()) {
      failure_ = timed("initialize", [&] { together([&] { workload_.initialize(); }); });
      leave_if_device_lost(failure_);
    }
    warmup_rule_ =
        is_kept() ? train::WarmupRule(kept_) : train::WarmupRule(options_, traits_, agreed_need());
    begin_timing_where(warmup_rule_->is_over({}));
  }

  bool go_on(std::int64_t most_steps) {
    for (std::int64_t step = 0; step < most_steps; ++step)
      if (!take_step()) return false;
    return true;
  }

  [[nodiscard]] std::int64_t steps_made() const {
    return kept_.steps + std::ssize(result_.step_times_s);
  }

  Measurement end() {
    if (has_taken_all_) finish();
    return std::move(result_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] bool is_kept() const { return kept_.steps > 0; }

  /// The needs of the rank that needs most.
  WarmupNeed agreed_need() {
    if (traits_.has_simulated_times) return {};
    const WarmupNeed mine = failure_ ? WarmupNeed{} : workload_.warmup_need();
    const std::vector<double> all =
        group_.exchange(std::array{static_cast<double>(mine.least), mine.is_watched ? 1.0 : 0.0});
    WarmupNeed need{.least = 0, .is_watched = false};
    for (std::size_t rank = 0; rank < all.size(); rank += 2) {
      need.least = std::max(need.least, static_cast<int>(all[rank]));
      need.is_watched = need.is_watched || all[rank + 1] != 0;
    }
    return need;
  }

  /// False: it is over.
  bool take_step() {
    const std::int64_t step = steps_made();
    StepSample sample;
    if (!failure_) {
      failure_ = train::attempt([&] { together([&] { sample = workload_.step(step); }); });
      if (!failure_) failure_ = failure_of(sample);
    }
    leave_if_device_lost(failure_);
    if (!agree_on_step(failure_, sample)) return false;
    if (!is_warm_) {
      warm_up();
    } else if (skipped_in_a_row_ == 0) {
      timed_s_.push_back(result_.step_times_s.back());
      if (!is_over_) is_over_ = decide() != StoppingDecision::go_on;
    }
    if (stopped_ && !is_over_) race_out(stopped_after(result_.step_times_s.size()));
    has_taken_all_ = is_over_ && workload_.steps_at_hand() == 0;
    return !has_taken_all_;
  }

  void warm_up() {
    ++result_.warmup_steps;
    if (skipped_in_a_row_ == 0) warmup_s_.push_back(result_.step_times_s.back());
    if (has_lost_cold()) {
      // It is all that is known of the run's speed.
      result_.warmup_steps = 0;
      race_out(lost_after(1));
      return;
    }
    begin_timing_where(warmup_rule_->is_over(warmup_s_));
  }

  /// The group's verdict on a first step.
  bool has_lost_cold() {
    if (is_kept() || !traits_.has_short_cold_step || result_.step_times_s.size() != 1) return false;
    if (warmup_s_.empty() || warmup_s_[0] <= default_policy().racing.cold_s) return false;
    const bool mine = has_lost_race_cold(warmup_s_[0], incumbent());
    return group_.exchange(std::array{mine ? 1.0 : 0.0})[0] != 0;
  }

  void race_out(std::string reason) {
    result_.status = Status::raced_out;
    result_.reason = std::move(reason);
    is_over_ = true;
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

  /// The leader's, the best so far; of others nothing.
  IncumbentEstimate incumbent() {
    return hooks_.incumbent && group_.group_rank() == 0 ? hooks_.incumbent() : IncumbentEstimate{};
  }

  /// The group's verdict after a timed step.
  StoppingDecision decide() {
    const StoppingDecision mine = timing_rule_.decide(
        timed_s_, timing_rule_.is_race_look(timed_s_.size()) ? incumbent() : IncumbentEstimate{});
    if (!timing_rule_.has_looked()) return mine;
    const std::vector<double> all = group_.exchange(std::array{static_cast<double>(mine)});
    const auto verdict = static_cast<StoppingDecision>(static_cast<int>(all[0]));
    if (verdict == StoppingDecision::lost) race_out(lost_after(timed_s_.size()));
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
    double joules_used = std::numeric_limits<double>::quiet_NaN();
    if (is_warm_) {
      sample_gpu();
      joules_used = joules() - joules_at_begin_;
    }
    if (!is_kept() && !timed_s_.empty() && !traits_.has_simulated_times)
      workload_.note_warm_after(train::steps_until_settled(warmup_s_, timed_s_));
    const Clock::time_point began = Clock::now();
    report_last_step();
    average_phases();
    result_.flops_per_step = workload_.flops_per_step();
    train::add_totals(group_, workload_.peak_memory(), joules_used, result_);
    if (hooks_.sample_gpu) result_.gpu = train::condition_of(exchange(group_, gpu_samples_));
    train::add_fallbacks(group_, workload_.fallbacks(), result_);
    add_overhead("teardown", began);
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
  const MeasureOptions& options_;
  const MeasureHooks& hooks_;
  KeptRun kept_;
  WorkloadTraits traits_;
  std::optional<train::WarmupRule> warmup_rule_;  ///< from begin() on
  train::TimingRule timing_rule_;
  Measurement result_;
  Failure failure_;                            ///< this rank's
  std::vector<double> warmup_s_, timed_s_;     ///< without steps that were skipped
  bool is_over_ = false;                       ///< but for steps that have run already
  bool has_taken_all_ = false;                 ///< nothing failed
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

MeasuredRun::MeasuredRun(Workload& workload, ProcessGroup& group, const MeasureOptions& options,
                         const MeasureHooks& hooks, const KeptRun& kept)
    : state_(std::make_unique<State>(workload, group, options, hooks, kept)) {}

MeasuredRun::~MeasuredRun() = default;

bool MeasuredRun::build() {
  return state_->build();
}

void MeasuredRun::begin() {
  state_->begin();
}

bool MeasuredRun::go_on(std::int64_t most_steps) {
  return state_->go_on(most_steps);
}

std::int64_t MeasuredRun::steps_made() const {
  return state_->steps_made();
}

Measurement MeasuredRun::end() {
  return state_->end();
}

Measurement measure(Workload& workload, ProcessGroup& group, const MeasureOptions& options,
                    const MeasureHooks& hooks, const KeptRun& kept) {
  MeasuredRun run(workload, group, options, hooks, kept);
  if (run.build()) {
    run.begin();
    while (run.go_on(std::numeric_limits<std::int64_t>::max())) {
    }
  }
  return run.end();
}

}  // namespace dstune
