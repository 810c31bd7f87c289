#include "dstune/search/tuner.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "dstune/base/error.hpp"
#include "tuners.hpp"

namespace dstune {

std::unique_ptr<Tuner> make_flat_tuner(const std::string& type, const PlannedSpace& space,
                                       const TuningOptions& options) {
  if (type == "race") return make_race_tuner(space, options);
  if (type == "model_based") return make_model_based_tuner(space, options);
  require(type == "gridsearch" || type == "random", "a tuner's name");
  return make_ordered_tuner(space, options);
}

std::unique_ptr<Tuner> make_tuner(const std::string& type, const PlannedSpace& space,
                                  const TuningOptions& options) {
  const bool is_size_searched =
      std::any_of(space.members.begin(), space.members.end(),
                  [](const PlannedMember& member) { return member.micro_batch_chain.has_value(); });
  if (is_size_searched && type != "race") return make_phased_tuner(type, space, options);
  return make_flat_tuner(type, space, options);
}

namespace {

class OrderedTuner : public Tuner {
 public:
  OrderedTuner(const PlannedSpace& space, const TuningOptions& options)
      : phases_(space.members.size(), Phase::none),
        early_stopping_(options.metric, options.early_stopping.value_or(0)) {
    for (std::size_t index = 0; index < phases_.size(); ++index) {
      if (space.members[index].planned.status != PlanStatus::planned) continue;
      phases_[index] = Phase::waiting;
      ++num_waiting_;
    }
  }

  std::optional<std::size_t> next() override {
    if (is_done()) return std::nullopt;
    while (phases_[first_] != Phase::waiting) ++first_;
    phases_[first_] = Phase::taken;
    --num_waiting_;
    return first_;
  }

  void observe(std::size_t index, const Observation& observation) override {
    require(index < phases_.size(), "an index of the planned space");
    if (phases_[index] == Phase::waiting) --num_waiting_;
    phases_[index] = Phase::taken;
    const bool is_ok = observation.status == Status::ok && observation.value.has_value();
    early_stopping_.observe(is_ok ? std::optional(observation.value->value) : std::nullopt);
  }

  [[nodiscard]] bool is_done() const override {
    return num_waiting_ == 0 || early_stopping_.is_due();
  }

  [[nodiscard]] std::vector<Skipped> skipped() const override {
    const auto reason = fmt::format("early stopping: {} experiments brought nothing better",
                                    early_stopping_.num_since_best());
    std::vector<Skipped> all;
    for (std::size_t index = 0; index < phases_.size(); ++index)
      if (phases_[index] == Phase::waiting) all.push_back({index, reason});
    return all;
  }

 private:
  enum class Phase { none, waiting, taken };

  std::vector<Phase> phases_;
  EarlyStopping early_stopping_;
  std::size_t num_waiting_ = 0;
  std::size_t first_ = 0;  ///< nothing before it waits
};

}  // namespace

std::unique_ptr<Tuner> make_ordered_tuner(const PlannedSpace& space, const TuningOptions& options) {
  return std::make_unique<OrderedTuner>(space, options);
}

}  // namespace dstune
