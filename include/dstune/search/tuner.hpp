#pragma once
/// Decides which experiment is next. Knows no MPI, no clock and no files; deterministic for the
/// same seed and the same order of observations. Local.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dstune/core/expected_runs.hpp"
#include "dstune/core/measurement.hpp"
#include "dstune/search/planner.hpp"

namespace dstune {

/// How an experiment ended.
struct Observation {
  Status status = Status::failed;
  /// The value in the job's metric; nothing if nothing was timed. One that was raced out has a
  /// value, too, which is no candidate for the best.
  std::optional<MetricValue> value;
  /// The memory that it took of the device at its peak, fullest rank; 0: not known.
  std::int64_t device_bytes = 0;

  /// The value of one that ran to its end.
  [[nodiscard]] std::optional<double> result() const {
    return status == Status::ok && value ? std::optional(value->value) : std::nullopt;
  }
};

class Tuner {
 public:
  virtual ~Tuner() = default;
  /// The member to run now; nothing where the tuner is done or waits for what is running (see
  /// is_done()).
  virtual std::optional<std::size_t> next() = 0;
  /// An experiment ended (or was known from the journal).
  virtual void observe(std::size_t member, const Observation& observation) = 0;
  /// The member that next() has asked for is not run after all: it is known by now to run out of
  /// memory.
  virtual void withdraw(std::size_t member) { observe(member, {Status::out_of_memory, {}}); }
  /// The value that was observed before is another by now: the user's own runs have said more of
  /// the target's time. It ended as it did. All that were observed are told so, one after the
  /// other, before anything else.
  virtual void revise(std::size_t /*member*/, const Observation& /*observation*/) {}
  /// Nothing will ever come from next() again, once what is running has been observed.
  [[nodiscard]] virtual bool is_done() const = 0;
  /// How many experiments may wait while no rank is idle. Experiments that wait were chosen without
  /// knowing how those before them end: 0 if that matters.
  [[nodiscard]] virtual std::size_t max_waiting() const { return 64; }
  /// Members that it decided not to run, with the reason; complete once is_done().
  struct Skipped {
    std::size_t member;
    std::string reason;
    PruneKind kind = PruneKind::not_chosen;
  };
  [[nodiscard]] virtual std::vector<Skipped> skipped() const = 0;
  /// The chance, as the tuner believes, that a member that was not run is more than 1 % better than
  /// the best. Nothing where it has no beliefs.
  [[nodiscard]] virtual std::optional<double> chance_of_better() const { return std::nullopt; }
  /// How many more members next() will ask for, as it looked when it was asked last. Nothing: it
  /// can not say. It changes nothing and takes no time.
  [[nodiscard]] virtual std::optional<ExpectedRuns> expected_left() const { return std::nullopt; }
  /// The member that others are compared with, by what is known now. Nothing: the space's.
  [[nodiscard]] virtual std::optional<std::size_t> baseline() const { return std::nullopt; }
  /// Notes for the user on its choices so far, in order; the list only grows.
  [[nodiscard]] virtual std::vector<std::string> notes() const { return {}; }
};

/// Tells whether the tuner races: challengers are stopped when they have lost, and a search that
/// has ended is complete for later jobs, too.
[[nodiscard]] bool tuner_races(const TuningOptions& options);

/// Whichever it is: the space's baseline comes first, and counts as a trial.
///
/// `gridsearch` and `random`: every planned member in the plan's order, which plan_space() has
/// drawn from the seed for random. `model_based`: what DeepSpeed's cost model ranks first (boosted
/// trees on what members differ in), one in five drawn from the seed. Early stopping, if given (5
/// for model_based): after so many experiments past the best one. `gridsearch` and `random` then
/// begin nothing that the rule could forbid by the results of those that run.
///
/// If micro-batches are searched, these three go through DeepSpeed's phases on groups of every
/// shape, ZeRO stage by stage. The sizes of a stage's first configuration come first (SizeSearch).
/// Then come the stage's others with the best of these sizes, in the tuner's order. A higher stage
/// comes only if it can improve. The cap of trials counts what is run.
///
/// `race`: the member that promises most, by its predicted throughput corrected by what was
/// measured so far (a Gaussian process over what members differ in). It ends once the chance that
/// anything left is more than 1 % better than the best is below 5 %, by beliefs whose own record
/// holds. Each knob's other values must have been tried next to the best. At most 35 % of the
/// members run, and 10. An out-of-memory excludes what needs as much memory; a value of a knob with
/// which everything failed excludes what has it. Early stopping does not apply; the cap of trials
/// counts what is run.
std::unique_ptr<Tuner> make_tuner(const std::string& type, const PlannedSpace& space,
                                  const TuningOptions& options);

}  // namespace dstune
