#pragma once
/// Decides which experiment is next. Knows no MPI, no clock and no files; deterministic for the
/// same seed and the same order of observations. Local.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dstune/core/measurement.hpp"
#include "dstune/search/planner.hpp"

namespace dstune {

class Tuner {
 public:
  virtual ~Tuner() = default;
  /// The index (in the planned space) of an experiment to run now; nothing where the tuner is done
  /// or waits for what is running (see is_done()).
  virtual std::optional<std::size_t> next() = 0;
  /// An experiment ended (or was known from the journal). value: of the job's metric, nothing
  /// where it has none.
  virtual void observe(std::size_t index, Status status, std::optional<double> value) = 0;
  /// Nothing will ever come from next() again.
  [[nodiscard]] virtual bool is_done() const = 0;
  /// Members that it decided not to run, with the reason; complete once is_done().
  struct Skipped {
    std::size_t index;
    std::string reason;
  };
  [[nodiscard]] virtual std::vector<Skipped> skipped() const = 0;
};

/// gridsearch and random: every planned member in the plan's order,
/// which plan_space() has drawn from the seed for random. In a chain of searched micro-batch sizes
/// the next larger size runs only while each one brings at least 5 % over the one before
/// (DeepSpeed's plateau), and none above one that failed. Early stopping, where given: after so
/// many experiments past the best one.
std::unique_ptr<Tuner> make_tuner(const std::string& type, const PlannedSpace& space,
                                  const TuningOptions& options);

}  // namespace dstune
