#pragma once
/// The tuners, each in a file of its own, and the rules that they share. Local.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "dstune/core/expected_runs.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/search/tuner.hpp"
#include "surrogate.hpp"

namespace dstune {

std::unique_ptr<Tuner> make_model_based_tuner(const PlannedSpace& space,
                                              const TuningOptions& options);
std::unique_ptr<Tuner> make_phased_tuner(const std::string& type, const PlannedSpace& space,
                                         const TuningOptions& options);
/// Runs that others chose before race goes on.
struct Begun {
  std::vector<std::pair<std::size_t, Observation>> observed{};
  std::vector<double> errors{};  ///< of what was believed of them, in its deviations
  /// Members whose measurements made the predictions, so that these can not be tested by them. They
  /// are not counted among the first ones of a search.
  std::set<std::size_t> fitted{};
  /// Uncertainty of each member's prediction (MemberBelief::unknowns); or empty.
  std::vector<std::vector<double>> unknowns{};
  /// They were spread over the space, so that it is not explored any more.
  bool are_spread = false;
  /// From one placement and moment to the next the same member differs by so much (standard
  /// deviation, relative), whatever its own interval says. Nothing: as the policy has it.
  std::optional<double> run_error{};
};
std::unique_ptr<Tuner> make_race_tuner(const PlannedSpace& space, const TuningOptions& options,
                                       const Begun& begun = {});
/// Makes the tuner that searches sizes that nobody has planned.
std::unique_ptr<Tuner> make_growing_tuner(const PlannedSpace& space, const TuningOptions& options);

/// The tuner of a space in which no member is smaller than the micro-batch that its config asks
/// for.
std::unique_ptr<Tuner> make_plain_tuner(const std::string& type, const PlannedSpace& space,
                                        const TuningOptions& options);
/// The tuner of a space in which some are.
std::unique_ptr<Tuner> make_fallback_tuner(const std::string& type, const PlannedSpace& space,
                                           const TuningOptions& options);

/// Every planned member, in the plan's order.
std::unique_ptr<Tuner> make_ordered_tuner(const PlannedSpace& space, const TuningOptions& options);

/// A tuner as users name it. The key's row in keys.json has the same names as choices.
struct TunerType {
  std::string_view name;
  /// Without phases: every planned member as it is.
  std::unique_ptr<Tuner> (*make)(const PlannedSpace&, const TuningOptions&);
  bool chooses = false;         ///< what runs, and in which order, is its choice and not the plan's
  bool is_drawn = false;        ///< the plan's order is drawn from the seed
  bool races = false;           ///< as tuner_races() has it
  bool searches_sizes = false;  ///< by itself: DeepSpeed's phases do not stand around it
};
inline constexpr TunerType tuner_types[] = {
    {.name = "gridsearch", .make = make_ordered_tuner},
    {.name = "random", .make = make_ordered_tuner, .is_drawn = true},
    {.name = "model_based", .make = make_model_based_tuner, .chooses = true},
    {.name = "race",
     .make = [](const PlannedSpace& space,
                const TuningOptions& options) { return make_race_tuner(space, options); },
     .chooses = true,
     .races = true,
     .searches_sizes = true},
};
/// Throws LogicError for another name.
[[nodiscard]] const TunerType& tuner_type(std::string_view name);

/// The space's planned members, rising.
[[nodiscard]] std::vector<std::size_t> planned_members(const PlannedSpace& space);

/// Members that differ in the micro-batch alone, by rising size.
using SizeChain = std::vector<std::size_t>;
/// The planned members as chains, in the space's order of their first ones.
[[nodiscard]] std::vector<SizeChain> size_chains(const PlannedSpace& space);

/// Why a tuner does not run a member.
struct SkipReason {
  std::string text;
  PruneKind kind = PruneKind::not_chosen;
};
[[nodiscard]] inline Tuner::Skipped skipped_for(std::size_t member, SkipReason reason) {
  return {member, std::move(reason.text), reason.kind};
}
/// The reason of members that are left when no more experiments are allowed.
[[nodiscard]] inline SkipReason past_num_trials() {
  return {"past the limit of experiments (tuner_num_trials)", PruneKind::cap};
}

/// DeepSpeed's early stopping: after so many experiments past the best one.
class EarlyStopping {
 public:
  /// `max_since_best` 0: never.
  EarlyStopping(Metric metric, int max_since_best)
      : metric_(metric), max_since_best_(max_since_best) {}

  /// An experiment ended, with a value or without: those count, too, so that a search in which all
  /// fail ends.
  void observe(std::size_t member, const std::optional<double>& value) {
    ++num_since_best_;
    ++num_observed_;
    if (!value) return;
    const bool is_best = !best_ || (is_minimised(metric_) ? *value < *best_ : *value > *best_);
    if (!is_best) return;
    best_ = value;
    best_member_ = member;
    num_since_best_ = 0;
  }
  /// It has another value by now. The best one stays the best, and the count goes on.
  void revise(std::size_t member, const std::optional<double>& value) {
    if (best_ && member == best_member_ && value) best_ = value;
  }
  [[nodiscard]] bool is_due() const {
    return max_since_best_ > 0 && num_since_best_ >= max_since_best_;
  }
  /// Tells whether one more may be begun beside `num_under_way` that have not ended. It may not if
  /// the search would be over when none of these brought anything better.
  [[nodiscard]] bool allows_beside(std::size_t num_under_way) const {
    return max_since_best_ == 0 ||
           num_since_best_ + static_cast<std::int64_t>(num_under_way) < max_since_best_;
  }
  /// How many of those that wait will be begun before it is due, if members come in no order of
  /// their value. Then the next of n is the best one with a chance of 1 / n.
  [[nodiscard]] ExpectedRuns expected_left(std::size_t num_waiting) const;
  /// Says why others are not run, if early stopping is due.
  [[nodiscard]] SkipReason reason() const {
    return {fmt::format("early stopping: {} experiments brought nothing better", num_since_best_),
            PruneKind::early_stopping};
  }

 private:
  Metric metric_;
  int max_since_best_;
  int num_since_best_ = 0;
  int num_observed_ = 0;
  std::optional<double> best_;
  std::size_t best_member_ = 0;
};

/// How many members a race asks for that has not begun: as many as most took of 150 simulated ones.
inline constexpr ExpectedRuns usual_race{14, 10, 31};

/// Rules that draw conclusions from a failure about members that were not run.
class FailureRules {
 public:
  /// All of them by place, as in the features, which outlive it.
  FailureRules(std::vector<const PlannedExperiment*> members, const Features& features,
               int enough_failures)
      : members_(std::move(members)), features_(&features), enough_failures_(enough_failures) {}

  /// Places that are not worth a run after this one ended, each with the reason; some may have been
  /// run already: every member with a value of a knob with which `enough_failures` members failed
  /// and none succeeded, while others did. Running out of memory is no such failure.
  std::vector<std::pair<std::size_t, std::string>> observe(std::size_t place, Status status);

 private:
  /// How members with one value of one feature ended.
  struct Level {
    std::size_t feature = 0;
    double value = 0;
    int failed = 0;
    int succeeded = 0;
  };
  Level& level_of(std::size_t feature, double value);

  std::vector<const PlannedExperiment*> members_;
  const Features* features_;
  int enough_failures_;
  std::vector<Level> levels_;
  int succeeded_ = 0;
};

}  // namespace dstune
