#include <unordered_map>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "dstune/core/measurement.hpp"
#include "tuners.hpp"

namespace dstune {

namespace {

/// A larger micro-batch is worth trying while each one brings so much (DeepSpeed's plateau).
constexpr double least_gain = 0.05;

class OrderedTuner : public Tuner {
 public:
  OrderedTuner(const PlannedSpace& space, const TuningOptions& options)
      : states_(space.members.size()),
        micro_batches_(space.members.size()),
        metric_(options.metric),
        early_stopping_(options.early_stopping.value_or(0)) {
    std::unordered_map<std::uint64_t, std::size_t> last_of_chain;
    for (std::size_t index = 0; index < space.members.size(); ++index) {
      const auto& [planned, chain] = space.members[index];
      micro_batches_[index] = planned.experiment.config.micro_batch;
      if (planned.status != PlanStatus::planned) continue;
      auto& state = states_[index];
      state.phase = Phase::waiting;
      ++num_waiting_;
      if (!chain) continue;
      const auto [last, is_first] = last_of_chain.try_emplace(*chain, index);
      if (is_first) continue;
      state.smaller = last->second;
      states_[last->second].larger = index;
      last->second = index;
    }
  }

  std::optional<std::size_t> next() override {
    while (first_ < states_.size() && states_[first_].phase != Phase::waiting) ++first_;
    for (std::size_t index = first_; index < states_.size(); ++index) {
      auto& state = states_[index];
      if (state.phase != Phase::waiting) continue;
      if (state.smaller && states_[*state.smaller].phase != Phase::observed) continue;
      state.phase = Phase::running;
      --num_waiting_;
      return index;
    }
    return std::nullopt;
  }

  void observe(std::size_t index, const Observation& observation) override {
    require(index < states_.size(), "an index of the planned space");
    auto& state = states_[index];
    if (state.phase == Phase::waiting) --num_waiting_;
    state.phase = Phase::observed;
    state.status = observation.status;
    if (observation.status == Status::ok && observation.value)
      state.value = observation.value->value;
    judge_chain(index);
    if (state.larger) judge_chain(*state.larger);
    judge_early_stopping(state.value);
  }

  [[nodiscard]] bool is_done() const override { return num_waiting_ == 0; }

  [[nodiscard]] std::vector<Skipped> skipped() const override {
    std::vector<Skipped> all;
    for (std::size_t index = 0; index < states_.size(); ++index) {
      if (states_[index].phase == Phase::skipped) all.push_back({index, states_[index].reason});
    }
    return all;
  }

 private:
  enum class Phase { none, waiting, running, observed, skipped };
  struct State {
    Phase phase = Phase::none;
    std::optional<std::size_t> smaller, larger;  ///< neighbours in the chain of micro-batches
    Status status = Status::ok;
    std::optional<double> value;
    std::string reason;
  };

  [[nodiscard]] bool is_better(double value, double than) const {
    return is_minimised(metric_) ? value < than : value > than;
  }

  void skip(std::size_t index, const std::string& reason) {
    if (states_[index].phase != Phase::waiting) return;
    states_[index].phase = Phase::skipped;
    states_[index].reason = reason;
    --num_waiting_;
  }

  void skip_larger(std::size_t index, const std::string& reason) {
    for (auto larger = states_[index].larger; larger; larger = states_[*larger].larger) {
      skip(*larger, reason);
    }
  }

  /// Ends a chain at a size that failed or brought too little.
  void judge_chain(std::size_t index) {
    const auto& state = states_[index];
    if (state.phase != Phase::observed || (!state.smaller && !state.larger)) return;
    if (state.status != Status::ok || !state.value) {
      skip_larger(index, fmt::format("the smaller micro-batch {} ended as {}",
                                     micro_batches_[index], to_text(state.status)));
      return;
    }
    if (!state.smaller || !states_[*state.smaller].value) return;
    const double before = *states_[*state.smaller].value;
    const double gain =
        (is_minimised(metric_) ? before - *state.value : *state.value - before) / before;
    if (gain < least_gain) {
      skip_larger(index, fmt::format("micro-batch {} brought {:.1f} % over {}, less than {:.0f} %",
                                     micro_batches_[index], 100 * gain,
                                     micro_batches_[*state.smaller], 100 * least_gain));
    }
  }

  void judge_early_stopping(const std::optional<double>& value) {
    ++num_since_best_;
    if (value && (!best_ || is_better(*value, *best_))) {
      best_ = value;
      num_since_best_ = 0;
    }
    if (early_stopping_ == 0 || num_since_best_ < early_stopping_) return;
    const auto reason =
        fmt::format("early stopping: {} experiments brought nothing better", num_since_best_);
    for (std::size_t index = 0; index < states_.size(); ++index) skip(index, reason);
  }

  std::vector<State> states_;
  std::vector<std::int64_t> micro_batches_;
  Metric metric_;
  int early_stopping_;
  std::size_t num_waiting_ = 0;
  std::size_t first_ = 0;  ///< nothing before it waits
  std::optional<double> best_;
  int num_since_best_ = 0;
};

}  // namespace

std::unique_ptr<Tuner> make_ordered_tuner(const PlannedSpace& space, const TuningOptions& options) {
  return std::make_unique<OrderedTuner>(space, options);
}

}  // namespace dstune
