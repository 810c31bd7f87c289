#pragma once
/// The tuners, each in a file of its own. Local.

#include <memory>
#include <optional>
#include <string>

#include "dstune/core/measurement.hpp"
#include "dstune/search/tuner.hpp"

namespace dstune {

std::unique_ptr<Tuner> make_ordered_tuner(const PlannedSpace& space, const TuningOptions& options);
std::unique_ptr<Tuner> make_model_based_tuner(const PlannedSpace& space,
                                              const TuningOptions& options);
std::unique_ptr<Tuner> make_phased_tuner(const std::string& type, const PlannedSpace& space,
                                         const TuningOptions& options);
std::unique_ptr<Tuner> make_race_tuner(const PlannedSpace& space, const TuningOptions& options);

/// Without phases: every planned member as it is.
std::unique_ptr<Tuner> make_flat_tuner(const std::string& type, const PlannedSpace& space,
                                       const TuningOptions& options);

/// DeepSpeed's early stopping: after so many experiments past the best one. Local.

class EarlyStopping {
 public:
  /// `max_since_best` 0: never.
  EarlyStopping(Metric metric, int max_since_best)
      : metric_(metric), max_since_best_(max_since_best) {}

  /// An experiment ended, with a value or without: those count, too, so that a search in which all
  /// fail ends.
  void observe(const std::optional<double>& value) {
    ++num_since_best_;
    if (!value) return;
    const bool is_best = !best_ || (is_minimised(metric_) ? *value < *best_ : *value > *best_);
    if (!is_best) return;
    best_ = value;
    num_since_best_ = 0;
  }
  [[nodiscard]] bool is_due() const {
    return max_since_best_ > 0 && num_since_best_ >= max_since_best_;
  }
  [[nodiscard]] int num_since_best() const { return num_since_best_; }

 private:
  Metric metric_;
  int max_since_best_;
  int num_since_best_ = 0;
  std::optional<double> best_;
};

}  // namespace dstune
